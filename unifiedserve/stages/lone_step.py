"""How long a decode step takes when it has the machine to itself: the yardstick for the target between tokens."""

import time
from collections.abc import Iterator

from unifiedserve.messages import Sequence
from unifiedserve.sampling import SamplingParams
from unifiedserve.stages.decode import DecodeStage
from unifiedserve.stages.language import LanguageModel

_UNTIMED = 2  # steps that fault pages in
_STEPS = 10
_SECONDS = 2.0


def measure_lone_step(model: LanguageModel, decode: DecodeStage) -> float:
    """Seconds of the quickest of a few steps of one short sequence, before there are any requests."""
    pages = model.kv.pool.allocate(model.kv.pages_for(1), 0)
    if pages is None:
        raise RuntimeError("the KV cache is in use before there are any requests")
    greedy = SamplingParams(temperature=0, ignore_eos=True)
    key = 0, 0
    decode.accept(
        Sequence(
            uid=0,
            index=0,
            arrival=0.0,
            token_ids=[0],
            num_prompt=1,
            pages=pages.tolist(),
            position_offset=0,
            sampling=greedy,
        )
    )
    try:
        return min(list(_steps(model, decode, key))[_UNTIMED:])
    finally:
        decode.drop(key)


def _steps(model: LanguageModel, decode: DecodeStage, key: tuple[int, int]) -> Iterator[float]:
    """The same step again and again."""
    begin = time.monotonic()
    sequence = decode.sequences[key]
    for done in range(_UNTIMED + _STEPS):
        start = time.monotonic()
        if done > _UNTIMED and start - begin > _SECONDS:
            return
        batch = [rows for _, rows in decode.rows([key])]
        decode.finish([key], model.next_logits(batch, model.run(batch)))
        del sequence.token_ids[1:]
        yield time.monotonic() - start
