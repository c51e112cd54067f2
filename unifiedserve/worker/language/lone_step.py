"""Time a decode step that has the machine to itself: the yardstick for the target between tokens."""

import time
from collections.abc import Iterator

from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.ticket import Ticket
from unifiedserve.worker.language.decode import DecodeStage
from unifiedserve.worker.language.model import LanguageModel
from unifiedserve.worker.language.sequence import Sequence

_FEWEST, _MOST = 2, 11  # steps; the first faults pages in, so it is hardly the quickest
_SECONDS = 0.1  # after which the fewest do, because the server's start waits for them


def measure_lone_step(model: LanguageModel, decode: DecodeStage) -> float:
    """Return the seconds of the quickest of a few steps of one short sequence. There are no requests yet."""
    pages = model.kv.pool.allocate(model.kv.pages_for(1), 0)
    if pages is None:
        raise RuntimeError("the KV cache is in use before there are any requests")
    sequence = Sequence(
        ticket=Ticket(uid=0, arrival=0.0),
        index=0,
        token_ids=[0],
        num_prompt=1,
        pages=pages.tolist(),
        position_offset=0,
        sampling=SamplingParams(temperature=0, ignore_eos=True),
    )
    decode.accept(sequence)
    try:
        return min(_steps(model, decode, sequence))
    finally:
        decode.drop(sequence.key)


def _steps(model: LanguageModel, decode: DecodeStage, sequence: Sequence) -> Iterator[float]:
    """Take the same step again and again; yield the seconds of each."""
    begin = time.monotonic()
    for done in range(_MOST):
        start = time.monotonic()
        if done >= _FEWEST and start - begin > _SECONDS:
            return
        if decode.ahead is None:
            rows = decode.rows([sequence.key])
            batch = [own for _, own in rows]
            decode.finish(rows, model.next_logits(batch, model.run(batch)))
        else:
            decode.launch([sequence.key])
            decode.collect()
        del sequence.token_ids[1:]
        yield time.monotonic() - start
