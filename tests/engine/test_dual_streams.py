"""On cores, with two streams: a batch is encoded in a thread of its own while prompts and answers go on."""

import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
import torch
from inline_workers import Asked, InlineWorkers, as_sent
from media import Clip
from questions import Question, ask
from reference import Reference

from unifiedserve.config import EngineConfig
from unifiedserve.device.cpu.side_thread import SideThread
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.wire import Failed, Message
from unifiedserve.models.processor import Processor
from unifiedserve.models.registry import load_processor
from unifiedserve.placement import read_placement
from unifiedserve.scheduling import EncodeWork
from unifiedserve.worker.language.encode import EncodedBatch, EncodeStage

CONFIG = EngineConfig.of(dual_streams="on", prefill_chunk_tokens=32, encode_budget_tokens=16, vision_threads=1)
SHORT = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
STREAM = SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)
VIDEO, TEXT, IMAGE = range(1, 4)
SECONDS = 60.0

Layers = Generator[None, None, EncodedBatch]


class Encoder:
    """The encoder, which a test stops before its batches, lets go on, or breaks."""

    def __init__(self, begin: Callable[[EncodeStage, list[EncodeWork]], Layers]) -> None:
        self.open = threading.Event()
        self.open.set()
        self.broken = False
        self.batches: list[set[int]] = []  # that have begun: their requests
        self.threads: set[int] = set()
        self.at_work = 0
        self._begin = begin

    def begin(self, stage: EncodeStage, work: list[EncodeWork]) -> Layers:
        self.batches.append({uid for uid, _ in work})
        self.threads.add(threading.get_ident())
        self.at_work += 1
        assert self.at_work == 1, "two batches at once"
        try:
            assert self.open.wait(SECONDS)
            if self.broken:
                raise RuntimeError("a broken encoder")
            return (yield from self._begin(stage, work))
        finally:
            self.at_work -= 1

    def holds(self, uid: int) -> bool:
        """Tell whether it is at work for a request."""
        return self.at_work == 1 and uid in self.batches[-1]


class Workers(InlineWorkers):
    """Workers of which requests may fail."""

    failed: dict[int, str]

    def _take(self, message: Message) -> None:
        if isinstance(message, Failed):
            self.failed[message.uid] = message.message
        else:
            super()._take(message)


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Encoder]:
    encoder = Encoder(EncodeStage.begin)
    monkeypatch.setattr(EncodeStage, "begin", lambda stage, work: encoder.begin(stage, work))
    yield encoder
    encoder.open.set()


@pytest.fixture(scope="module")
def processor(checkpoint: Path) -> Processor:
    return load_processor(checkpoint)


@pytest.fixture(scope="module")
def questions(clips: Callable[[int], Clip]) -> dict[int, Question]:
    every_frame = {"media_io_kwargs": {"video": {"num_frames": -1}}}
    return {
        VIDEO: ask([clips(12), "What happens?"], clips, every_frame),
        TEXT: ask(["What is a river?"], clips),
        IMAGE: ask([clips(12).frames[3], "What is this?"], clips),
    }


@pytest.fixture(scope="module")
def asked(
    questions: dict[int, Question],
    clips: Callable[[int], Clip],
    processor: Processor,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[int, Asked]:
    folder = tmp_path_factory.mktemp("images")
    return {uid: as_sent(question, processor, clips, folder) for uid, question in questions.items()}


@pytest.fixture(scope="module")
def expected(hf: Reference, questions: dict[int, Question]) -> dict[int, list[int]]:
    hf.model.generation_config.eos_token_id, eos = None, hf.model.generation_config.eos_token_id
    try:
        return {uid: hf.generate(question.case, SHORT.max_tokens) for uid, question in questions.items()}
    finally:
        hf.model.generation_config.eos_token_id = eos


@pytest.fixture(params=["shared", "monolithic", "ep-d"])
def workers(
    request: pytest.FixtureRequest, checkpoint: Path, processor: Processor, encoder: Encoder
) -> Iterator[Workers]:
    """Yield workers of each placement, which in the end leave no page, no thread and the cores as they were."""
    before, cores = set(threading.enumerate()), torch.get_num_threads()
    workers = Workers(read_placement(request.param, ()), checkpoint, processor, CONFIG)
    workers.failed = {}
    try:
        yield workers
        assert set(workers.used_pages().values()) == {0}
    finally:
        encoder.open.set()
        workers.close()
    assert {thread for thread in threading.enumerate() if thread.name.startswith("side-thread")} <= before
    assert torch.get_num_threads() == cores


def end(workers: Workers, uid: int) -> None:
    """Call a request back, and wait until nothing of it is left."""
    workers.abort(uid)
    workers.run_until(lambda: uid in workers.drained)


def test_answers_are_those_of_transformers(
    workers: Workers, encoder: Encoder, asked: dict[int, Asked], expected: dict[int, list[int]]
) -> None:
    for uid, question in asked.items():
        workers.submit(uid, question, SHORT)
    assert {uid: workers.answer(uid) for uid in asked} == expected
    assert len(encoder.batches) > 1
    assert threading.get_ident() not in encoder.threads


def test_texts_are_answered_while_a_batch_is_encoded(
    workers: Workers, encoder: Encoder, asked: dict[int, Asked], expected: dict[int, list[int]]
) -> None:
    """One that streams goes on, and one that comes meanwhile is prefilled and decoded."""
    workers.submit(10, asked[TEXT], STREAM)
    workers.run_until(lambda: len(workers.tokens[10]) > 2)
    encoder.open.clear()
    workers.submit(VIDEO, asked[VIDEO], SHORT)
    workers.run_until(lambda: encoder.holds(VIDEO))
    workers.submit(TEXT, asked[TEXT], SHORT)
    streamed = len(workers.tokens[10])
    assert workers.answer(TEXT) == expected[TEXT]
    workers.run_until(lambda: len(workers.tokens[10]) > streamed + 2)
    assert encoder.holds(VIDEO)
    encoder.open.set()
    assert workers.answer(VIDEO) == expected[VIDEO]
    end(workers, 10)


def test_a_client_that_leaves_while_its_video_is_in_the_encoder(
    workers: Workers, encoder: Encoder, asked: dict[int, Asked], expected: dict[int, list[int]]
) -> None:
    encoder.open.clear()
    workers.submit(VIDEO, asked[VIDEO], STREAM)
    workers.run_until(lambda: encoder.holds(VIDEO))
    workers.submit(IMAGE, asked[IMAGE], SHORT)
    workers.abort(VIDEO)
    encoder.open.set()
    workers.run_until(lambda: VIDEO in workers.drained)
    assert workers.answer(IMAGE) == expected[IMAGE]


def test_an_encoder_that_fails_ends_the_requests_of_its_batch(
    workers: Workers, encoder: Encoder, asked: dict[int, Asked], expected: dict[int, list[int]]
) -> None:
    encoder.broken = True
    encoder.open.clear()
    workers.submit(VIDEO, asked[VIDEO], SHORT)
    workers.submit(TEXT, asked[TEXT], SHORT)
    workers.run_until(lambda: encoder.holds(VIDEO))
    encoder.open.set()
    workers.run_until(lambda: VIDEO in workers.failed)
    assert "a broken encoder" in workers.failed[VIDEO]
    end(workers, VIDEO)
    encoder.broken = False
    workers.submit(IMAGE, asked[IMAGE], SHORT)
    assert workers.answer(IMAGE) == expected[IMAGE]
    assert workers.answer(TEXT) == expected[TEXT]


def test_workers_end_when_the_batch_under_way_is_done(
    checkpoint: Path,
    processor: Processor,
    encoder: Encoder,
    asked: dict[int, Asked],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    close, threads = SideThread.close, torch.get_num_threads()

    def go_on_and_close(side: SideThread) -> None:
        assert encoder.at_work
        encoder.open.set()
        close(side)

    monkeypatch.setattr(SideThread, "close", go_on_and_close)
    workers = InlineWorkers(read_placement("shared", ()), checkpoint, processor, CONFIG)
    try:
        encoder.open.clear()
        workers.submit(VIDEO, asked[VIDEO], SHORT)
        workers.run_until(lambda: encoder.holds(VIDEO))
    finally:
        workers.close()
    assert not encoder.at_work
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("side-thread")]
    assert torch.get_num_threads() == threads
