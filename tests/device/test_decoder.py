"""A device that decodes by itself gives the logits of steps that the host plans, whoever joins, idles and leaves."""

import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from deferred import DeferredDevice, DeferredStream
from small_qwen2 import small_qwen2
from torch import Tensor

from ipc_buffers import PagePool
from unifiedserve.attention import RaggedBatch, Span
from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, Decoder, DecodeRow, DecodeStep, Device
from unifiedserve.device.cuda import CudaDevice, step_graphs
from unifiedserve.device.cuda.decode_graphs import DecodeGraphs
from unifiedserve.memory.kv_cache import KVCache, KVLayout

PAGE, PAGES, ROWS, LONGEST, VOCAB = 4, 200, 9, 60, 97
NAMES = ["stand-in", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module", params=NAMES)
def device(request: pytest.FixtureRequest) -> Device:
    return CudaDevice(EngineConfig()) if request.param == "cuda" else DeferredDevice()


@pytest.fixture(scope="module")
def model(device: Device) -> Any:
    made = small_qwen2(VOCAB, layers=2)
    for module in made.modules():
        for holder in (module._parameters, module._buffers):
            for name, value in holder.items():
                if value is not None:
                    there = device.upload(value.data)
                    holder[name] = torch.nn.Parameter(there, False) if holder is module._parameters else there
    return made


@pytest.fixture
def kv(device: Device) -> Iterator[KVCache]:
    layout = KVLayout(2, PAGE, 2, 16, "float32")
    pool = PagePool.create(f"test-decoder-{uuid.uuid4().hex[:12]}", PAGES, layout.page_bytes, device.place)
    yield KVCache(pool, layout, device=device)
    pool.close()
    pool.unlink()


class Sequence:
    """Tokens so far, all but the last of which are in the cache."""

    def __init__(self, tokens: list[int], pages: list[int]) -> None:
        self.tokens, self.pages = tokens, pages
        self.row: int | None = None

    def used_pages(self) -> list[int]:
        return self.pages[: -(-len(self.tokens) // PAGE)]


def planned(model: Any, device: Device, kv: KVCache, sequences: list[Sequence], starts: list[int]) -> Tensor:
    """Return the logits after the last tokens, of a step that takes all tokens from `starts` on."""
    spans = [Span(s.used_pages(), start, len(s.tokens), 1) for s, start in zip(sequences, starts, strict=True)]
    batch = RaggedBatch.build(spans, PAGE)
    new = [(s.tokens[at], at) for s, start in zip(sequences, starts, strict=True) for at in range(start, len(s.tokens))]
    tokens, places = (torch.tensor(part) for part in zip(*new, strict=True))
    run = device.kernels.runner(model.get_decoder(), torch.float32)
    assert run is not None
    with torch.inference_mode():
        embeds = model.get_input_embeddings()(device.upload(tokens))
        hidden = run(embeds, device.upload(places[None]), batch, kv)
        return device.kernels.head(model.get_output_embeddings())(hidden).cpu()


@pytest.mark.parametrize("seed", range(3))
def test_logits_are_those_of_planned_steps(model: Any, device: Device, kv: KVCache, seed: int) -> None:
    chance = random.Random(seed)
    decoder = device.kernels.decoder(model, kv, ROWS, LONGEST, 1)
    assert decoder is not None
    assert decoder.rows == ROWS
    free_pages, free_rows = list(range(PAGES)), list(range(ROWS))
    chance.shuffle(free_pages)
    running: list[Sequence] = []
    for _ in range(25):
        while free_rows and chance.random() < 0.6:
            pages = [free_pages.pop() for _ in range(-(-LONGEST // PAGE))]
            running.append(Sequence([chance.randrange(VOCAB) for _ in range(chance.randrange(2, 30))], pages))
            running[-1].row = free_rows.pop(chance.randrange(len(free_rows)))
            planned(model, device, kv, [Sequence(running[-1].tokens[:-1], pages)], [0])
            device.fence()
        chosen = [s for s in running if chance.random() < 0.8] or running[:1]
        if chosen:
            _step(model, device, kv, decoder, chosen)
        for sequence in [s for s in running if len(s.tokens) == LONGEST or chance.random() < 0.1]:
            running.remove(sequence)
            free_pages += sequence.pages
            free_rows.append(sequence.row or 0)
            decoder.forget(sequence.row or 0)


def _step(model: Any, device: Device, kv: KVCache, decoder: Decoder, chosen: list[Sequence]) -> None:
    """Take a step by the device, then the same by a plan."""
    seen: list[Tensor] = []

    def draw(logits: Tensor) -> Tensor:
        seen.append(logits.clone())
        return logits.argmax(-1)

    rows = [DecodeRow(s.row or 0, s.tokens[-1], len(s.tokens) - 1, 0, s.used_pages()) for s in chosen]
    tokens = decoder.launch(rows, draw).tokens()
    expected = planned(model, device, kv, chosen, [len(s.tokens) - 1 for s in chosen])
    torch.testing.assert_close(seen[0].cpu(), expected, rtol=1e-4, atol=1e-4)
    assert tokens == expected.argmax(-1).tolist()
    for sequence, token in zip(chosen, tokens, strict=True):
        sequence.tokens.append(token)


def test_it_goes_on_with_what_it_has_drawn(model: Any, device: Device, kv: KVCache) -> None:
    """Two steps at once, the second of which is told no token."""
    decoder = device.kernels.decoder(model, kv, ROWS, LONGEST, 1)
    assert decoder is not None
    sequence = Sequence([5, 6, 7, 8], list(range(20)))
    planned(model, device, kv, [Sequence(sequence.tokens[:-1], sequence.pages)], [0])
    device.fence()
    steps = []
    for number in range(6):
        token = sequence.tokens[-1] if number == 0 else None
        row = DecodeRow(0, token, len(sequence.tokens) - 1 + number, 0, sequence.pages[: 2 + number])
        steps.append(decoder.launch([row], lambda logits: logits.argmax(-1)))
    drawn = [step.tokens()[0] for step in steps]
    for token in drawn:
        expected = planned(model, device, kv, [sequence], [0])
        assert token == int(expected.argmax())
        sequence.tokens.append(token)


def test_too_few_pages_are_refused(model: Any, device: Device, kv: KVCache) -> None:
    decoder = device.kernels.decoder(model, kv, ROWS, LONGEST, 1)
    assert decoder is not None
    with pytest.raises(ValueError, match="1 pages of 4 cannot hold 5 tokens"):
        decoder.launch([DecodeRow(0, 3, 4, 0, [1])], lambda logits: logits.argmax(-1))


def test_what_grows_with_contexts_is_foretold(model: Any, device: Device, kv: KVCache) -> None:
    """Page tables and partial results: all that a decoder keeps but what depends on its rows alone."""

    def kept(rows: int, tokens: int) -> int:
        decoder = device.kernels.decoder(model, kv, rows, tokens, 1)
        assert isinstance(decoder, DecodeGraphs)
        held = [*vars(decoder).values(), *vars(decoder._state).values()]
        storages = [each.untyped_storage() for each in held if isinstance(each, Tensor)]
        return sum({each.data_ptr(): each.nbytes() for each in storages}.values())

    for rows, tokens in ((1, 300), (ROWS, 3000)):
        foretold = [device.decode_bytes(model.config, rows, each, PAGE) for each in (tokens, LONGEST)]
        assert kept(rows, tokens) - kept(rows, LONGEST) == foretold[0] - foretold[1] > 0


class Recorder:
    """Notes what is recorded in the stand-in's place, and never lets it be within a launch."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.recorded = 0
        self.fails: Exception | None = None
        self._launching = False
        self._record, self._launch = DeferredStream.record, DecodeGraphs.launch
        patch.setattr(DeferredStream, "record", lambda stream, work: self.record(stream, work))
        patch.setattr(DecodeGraphs, "launch", lambda *arguments: self.launch(*arguments))

    def record(self, stream: DeferredStream, work: Callable[[], object]) -> Callable[[], object]:
        assert not self._launching
        replay = self._record(stream, work)
        if self.fails:
            raise self.fails
        self.recorded += 1
        return replay

    def launch(self, *arguments: Any) -> DecodeStep:
        self._launching = True
        try:
            return self._launch(*arguments)
        finally:
            self._launching = False


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Let graphs be for contexts of 8, 16, 32 and 60 tokens, the first two of them from the start."""
    monkeypatch.setattr(step_graphs, "FIRST_CONTEXT", 8)
    monkeypatch.setattr(step_graphs, "TIMES", 2)
    monkeypatch.setattr(step_graphs, "AHEAD", 3)
    return Recorder(monkeypatch)


@pytest.fixture
def on_stand_in(device: Device) -> None:
    if not isinstance(device, DeferredDevice):
        pytest.skip("only the stand-in tells what is recorded")


def prefilled(model: Any, device: Device, kv: KVCache, tokens: int, number: int = 0) -> Sequence:
    """Return a sequence in the row of its number."""
    pages = list(range(15 * number, 15 * (number + 1)))
    sequence = Sequence([(7 * place + number) % VOCAB for place in range(tokens)], pages)
    sequence.row = number
    planned(model, device, kv, [Sequence(sequence.tokens[:-1], pages)], [0])
    device.fence()
    return sequence


@pytest.mark.usefixtures("on_stand_in")
def test_most_steps_are_recorded_at_the_start(model: Any, device: Device, kv: KVCache, recorder: Recorder) -> None:
    """Those of all numbers of rows, for the first two contexts, as far as the model's length goes."""
    rows = len(list(step_graphs.row_buckets(ROWS)))
    for tokens, contexts in ((LONGEST, 2), (16, 2), (9, 2), (8, 1), (3, 1)):
        recorder.recorded = 0
        device.kernels.decoder(model, kv, ROWS, tokens, 1)
        assert recorder.recorded == contexts * rows


@pytest.mark.usefixtures("on_stand_in")
def test_a_step_that_is_not_recorded_goes_on_all_the_same(
    model: Any, device: Device, kv: KVCache, recorder: Recorder
) -> None:
    decoder = device.kernels.decoder(model, kv, ROWS, LONGEST, 1)
    assert decoder is not None
    sequences = [prefilled(model, device, kv, 20, 0), prefilled(model, device, kv, 5, 1)]
    before = recorder.recorded
    for steps in (1, 2):
        _step(model, device, kv, decoder, sequences)
        assert decoder.eager_steps == steps
    assert recorder.recorded == before
    decoder.prepare()
    assert recorder.recorded == before + 1
    for _ in range(3):
        _step(model, device, kv, decoder, sequences)
    assert decoder.eager_steps == 2
    _step(model, device, kv, decoder, sequences[:1])  # as many rows as one graph, fewer than another
    assert decoder.eager_steps == 3


@pytest.mark.usefixtures("on_stand_in")
def test_longer_contexts_are_recorded_before_they_are_there(
    model: Any, device: Device, kv: KVCache, recorder: Recorder
) -> None:
    """Nothing is as long as a step's worker prepares between its steps, whatever else decodes."""
    decoder = device.kernels.decoder(model, kv, ROWS, LONGEST, 1)
    assert decoder is not None
    sequences = [prefilled(model, device, kv, 6, 0), prefilled(model, device, kv, 3, 1)]
    for _ in range(LONGEST - 6):
        decoder.prepare()
        _step(model, device, kv, decoder, sequences)
    assert decoder.eager_steps == 0


@pytest.mark.usefixtures("on_stand_in")
def test_what_is_recorded_between_two_steps_under_way_changes_nothing(
    model: Any, device: Device, kv: KVCache, recorder: Recorder
) -> None:
    """The second step goes on with the first one's token."""
    decoder = device.kernels.decoder(model, kv, ROWS, LONGEST, 1)
    assert decoder is not None
    sequence, other = prefilled(model, device, kv, 18, 0), prefilled(model, device, kv, 18, 1)
    steps = []
    for number in range(4):
        token = sequence.tokens[-1] if number == 0 else None
        rows = [DecodeRow(0, token, 17 + number, 0, sequence.pages[: 5 + number // 3])]
        if number % 2:
            rows.append(DecodeRow(1, other.tokens[-1], 17, 0, other.pages[:5]))
        steps.append(decoder.launch(rows, lambda logits: logits.argmax(-1)))
        decoder.prepare()
    for step in steps:
        expected = planned(model, device, kv, [sequence], [0])
        assert step.tokens()[0] == int(expected.argmax())
        sequence.tokens.append(int(expected.argmax()))


@pytest.mark.usefixtures("on_stand_in")
@pytest.mark.parametrize("error", [RuntimeError("not permitted when capturing"), torch.OutOfMemoryError("full")])
@pytest.mark.parametrize("at_the_start", [False, True])
def test_what_cannot_be_recorded_is_done_without(
    model: Any,
    device: Device,
    kv: KVCache,
    recorder: Recorder,
    error: Exception,
    at_the_start: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is counted, and said once; nothing else is tried, but what has been recorded stays in use."""
    recorder.fails = error if at_the_start else None
    decoder = device.kernels.decoder(model, kv, ROWS, LONGEST, 1)
    assert decoder is not None
    recorder.fails = error
    sequence = prefilled(model, device, kv, 12)
    for tokens in range(12, 40):
        decoder.prepare()
        _step(model, device, kv, decoder, [sequence])
        assert decoder.eager_steps == (tokens - 11 if at_the_start else max(0, tokens - 16))
    assert [record.message for record in caplog.records if "could not be recorded" in record.message] == [
        f"a step of decode could not be recorded; without a CUDA graph it is slower: {error}"
    ]


def test_the_processor_is_told_of_steps_as_they_are(model: Any, kv: KVCache) -> None:
    assert CPU.kernels.decoder(model, kv, ROWS, LONGEST, 1) is None


def test_a_step_that_other_ranks_record_must_be_recorded() -> None:
    """Else one would issue its sums one by one, and the others in graphs."""

    class Full:
        def record(self, work: Callable[[], object]) -> Callable[[], object]:
            raise RuntimeError("there is no memory")

    stream: Any = Full()
    graphs = step_graphs.StepGraphs(lambda rows, context: None, lambda: None, stream, ROWS, LONGEST, together=True)
    with pytest.raises(RuntimeError, match="there is no memory"):
        graphs.record_first()
