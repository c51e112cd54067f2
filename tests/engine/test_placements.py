"""Real workers of any placement: the same tokens everywhere, and no page is left."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from inline_workers import Asked, InlineWorkers, as_sent
from media import Clip
from questions import Question, ask
from reference import Reference

from unifiedserve.config import EngineConfig
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.models.processor import Processor
from unifiedserve.models.registry import load_processor
from unifiedserve.placement import NAMED, read_placement

SHORT, LONG = (SamplingParams(temperature=0, max_tokens=count, ignore_eos=True) for count in (12, 400))
CONFIG = EngineConfig.of(prefill_chunk_tokens=32, encode_budget_tokens=16, vision_threads=1)

PLACED = [read_placement(name, ()) for name in (*NAMED, "e+pd", "2v+2e+2p+2d", "2ep+d")]
#: nothing has to travel between their memories
APART = [
    "vepd@mem0+vepd@mem1",
    "v@mem2+2ep@mem0+ep@mem1+d@mem0+d@mem1",
    "2v+e@mem0+2e@mem1+pd@mem0+p@mem1+d@mem1",
]
PLACED += [read_placement(text, ()) for text in APART]


WITHOUT = {
    "pacing": {"no_pacing": True},
    "least slack": {"order": "fcfs"},
    "arrival": {"order": "shortest"},
    "any mechanism": {"naive": True},
    "fixed budgets": {"budgets": "profiled"},
    "anything but HydraInfer's algorithm": {"scheduling": "stage-level"},
    "anything but UnifiedServe's algorithm": {"scheduling": "prefill-encode", "placement": "shared"},
}


@pytest.fixture(scope="module")
def processor(checkpoint: Path) -> Processor:
    return load_processor(checkpoint)


@pytest.fixture(scope="module")
def questions(clips: Callable[[int], Clip]) -> dict[str, Question]:
    pixels = clips(12).frames[3]
    every_frame = {"media_io_kwargs": {"video": {"num_frames": -1}}}
    return {
        "text": ask(["What is a river?"], clips),
        "image": ask([pixels, "What is this?"], clips),
        "both": ask([pixels, clips(12), "Is the image in the video?"], clips, every_frame),
    }


@pytest.fixture(scope="module")
def asked(
    questions: dict[str, Question],
    clips: Callable[[int], Clip],
    processor: Processor,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Asked]:
    folder = tmp_path_factory.mktemp("images")
    return {name: as_sent(question, processor, clips, folder) for name, question in questions.items()}


@pytest.fixture(scope="module")
def expected(hf: Reference, questions: dict[str, Question]) -> dict[str, list[int]]:
    hf.model.generation_config.eos_token_id, eos = None, hf.model.generation_config.eos_token_id
    try:
        return {name: hf.generate(question.case, SHORT.max_tokens) for name, question in questions.items()}
    finally:
        hf.model.generation_config.eos_token_id = eos


@pytest.fixture(scope="module", params=PLACED, ids=lambda placement: placement.name)
def workers(request: pytest.FixtureRequest, checkpoint: Path, processor: Processor) -> Iterator[InlineWorkers]:
    workers = InlineWorkers(request.param, checkpoint, processor, CONFIG)
    yield workers
    workers.close()


def test_answers_are_those_of_transformers(
    workers: InlineWorkers, asked: dict[str, Asked], expected: dict[str, list[int]]
) -> None:
    for uid, question in enumerate(asked.values(), 1):
        workers.submit(uid, question, SHORT)
    answers = {name: workers.answer(uid) for uid, name in enumerate(asked, 1)}
    assert answers == expected
    assert set(workers.used_pages().values()) == {0}


@pytest.mark.parametrize("turns", [0, 1, 4, 16, 64])
def test_an_abort_leaves_nothing_behind(
    workers: InlineWorkers, asked: dict[str, Asked], expected: dict[str, list[int]], turns: int
) -> None:
    """Wherever the request is by then, and whoever runs beside it."""
    aborted, other = 100 + 2 * turns, 101 + 2 * turns
    workers.submit(aborted, asked["both"], LONG)
    workers.submit(other, asked["image"], SHORT)
    for _ in range(turns):
        workers.turn()
    workers.abort(aborted)
    workers.run_until(lambda: aborted in workers.drained)
    assert workers.answer(other) == expected["image"]
    assert set(workers.used_pages().values()) == {0}


def test_an_abort_in_the_middle_of_the_answer(workers: InlineWorkers, asked: dict[str, Asked]) -> None:
    workers.submit(50, asked["both"], LONG)
    workers.run_until(lambda: len(workers.tokens[50]) > 3)
    workers.abort(50)
    workers.run_until(lambda: 50 in workers.drained)
    assert set(workers.used_pages().values()) == {0}


def test_a_memory_for_encoders_alone_has_no_pages_of_texts(
    checkpoint: Path, processor: Processor, asked: dict[str, Asked], expected: dict[str, list[int]]
) -> None:
    workers = InlineWorkers(read_placement("e@mem0+p@mem1+d@mem1", ()), checkpoint, processor, CONFIG)
    try:
        assert ("mem0", "kv") not in workers.used_pages()
        workers.submit(1, asked["text"], SHORT)
        assert workers.answer(1) == expected["text"]
        assert set(workers.used_pages().values()) == {0}
    finally:
        workers.close()


@pytest.mark.parametrize(("irp", "encoders"), [(True, {"encode-1", "encode-2", "encode-3"}), (False, {"encode-1"})])
def test_encoders_share_the_units_of_a_request(
    irp: bool,
    encoders: set[str],
    checkpoint: Path,
    processor: Processor,
    asked: dict[str, Asked],
    expected: dict[str, list[int]],
) -> None:
    placement = msgspec.structs.replace(read_placement("3e+p+d", ()), irp=irp)
    workers = InlineWorkers(placement, checkpoint, processor, CONFIG)
    try:
        workers.submit(1, asked["both"], SHORT)
        assert workers.answer(1) == expected["both"]
        workers.run_until(lambda: all(count == 0 for count in workers.used_pages().values()))
        assert {span.instance for span in workers.spans if span.name == "encode"} == encoders
    finally:
        workers.close()


@pytest.mark.parametrize("without", WITHOUT)
def test_answers_are_the_same_without_a_mechanism(
    without: str,
    checkpoint: Path,
    processor: Processor,
    asked: dict[str, Asked],
    expected: dict[str, list[int]],
) -> None:
    """Requests with targets of their own, the tightest last, in one loop where the options give no other placement."""
    options = {"placement": "monolithic", "encode_budget_tokens": 16, **WITHOUT[without]}
    config = EngineConfig.of(**options, vision_threads=1)
    workers = InlineWorkers(read_placement(config.machine.placement, ()), checkpoint, processor, config)
    try:
        for uid, question in enumerate(asked.values(), 1):
            workers.submit(uid, question, SHORT, target=100.0 / uid)
        assert {name: workers.answer(uid) for uid, name in enumerate(asked, 1)} == expected
        assert set(workers.used_pages().values()) == {0}
    finally:
        workers.close()
