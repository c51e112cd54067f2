"""Real workers of any placement, side by side in this process: the same tokens everywhere, and no page is left."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import pytest
import torch
from media import Clip
from model_loop import plans
from PIL import Image
from reference import Reference
from test_fidelity import Question, ask

from unifiedserve.config import PLACEMENTS, EngineConfig, Instance, Placement, Stage
from unifiedserve.memory.kv_cache import KVLayout
from unifiedserve.memory.shared import ENGINE_INBOX, MemoryLayout, PoolSize, SharedMemory
from unifiedserve.memory.weights import load_weights
from unifiedserve.messages.media import MediaPlan
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import (
    Abort,
    Drained,
    Failed,
    MediaSource,
    Message,
    PrefillRequest,
    Report,
    VisionRequest,
    pack,
    unpack,
)
from unifiedserve.models.base import MediaOptions, Processor
from unifiedserve.models.registry import load_processor
from unifiedserve.worker.loop import Worker
from unifiedserve.worker.spec import WorkerSpec

TOKENS = 12
SECONDS = 60.0

VISION = Instance("vision", (Stage.VISION,))
ENCODE, PREFILL, DECODE = (Instance(stage.value, (stage,)) for stage in (Stage.ENCODE, Stage.PREFILL, Stage.DECODE))
PLACED = [
    *PLACEMENTS.values(),
    Placement("e-p-d", (VISION, ENCODE, PREFILL, DECODE)),
    Placement("ed-p", (VISION, Instance("encode-decode", (Stage.ENCODE, Stage.DECODE)), PREFILL)),
    Placement("e-pd", (VISION, ENCODE, Instance("prefill-decode", (Stage.PREFILL, Stage.DECODE)))),
    Placement("one", (Instance("all", tuple(Stage)),)),
]


@dataclass
class Asked:
    """A question as the engine would send it."""

    token_ids: list[int]
    media: list[MediaPlan]
    sources: list[MediaSource]


class Workers:
    """All workers of a placement, which take turns, and what an engine does for them."""

    def __init__(self, placement: Placement, checkpoint: Path, processor: Processor) -> None:
        name = f"test-workers-{uuid.uuid4().hex[:12]}"
        config = EngineConfig(prefill_chunk_tokens=32, encode_budget_tokens=16, vision_threads=1)
        kv = KVLayout.of(processor.config, config.kv_page_tokens, torch.float32)
        layout = MemoryLayout(
            engine_id=name,
            weights=f"{name}-weights",
            kv=PoolSize(64, kv.page_bytes),
            patch=PoolSize(64, 16 * processor.patch_row_bytes),
            visual=PoolSize(64, 16 * processor.visual_dim * 4),
            instances=tuple(instance.name for instance in placement.instances),
        )
        self.memory = SharedMemory.create(layout)
        self.tokens: dict[int, dict[int, int]] = {}
        self.drained: set[int] = set()
        self._placement = placement
        self._arena = load_weights(checkpoint, layout.weights, torch.float32)
        self.workers = [
            Worker(
                WorkerSpec(
                    config=config,
                    placement=placement,
                    instance=instance,
                    number=number,
                    layout=layout,
                    model_dir=str(checkpoint),
                    dtype="float32",
                    patch_row_bytes=processor.patch_row_bytes,
                    visual_dim=processor.visual_dim,
                    vocab_size=processor.vocab_size,
                    eos_token_ids=processor.eos_token_ids,
                )
            )
            for number, instance in enumerate(placement.instances, 1)
        ]

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self._arena.close()
        self._arena.unlink()
        self.memory.unlink()

    def send(self, stage: Stage, message: Message) -> None:
        self.memory.inboxes[self._placement.host(stage)].send(pack(message))

    def submit(self, uid: int, asked: Asked, count: int = TOKENS) -> None:
        ticket = Ticket(uid, monotonic())
        self.tokens[uid] = {}
        request = PrefillRequest(
            ticket=ticket,
            token_ids=asked.token_ids,
            num_prompt=len(asked.token_ids),
            media=asked.media,
            sampling=SamplingParams(temperature=0, max_tokens=count, ignore_eos=True),
            indices=[0],
        )
        hosts = {self._placement.host(stage): stage for stage in (Stage.ENCODE, Stage.PREFILL)}
        for stage in hosts.values():
            self.send(stage, request)
        if asked.sources:
            self.send(Stage.VISION, VisionRequest(ticket=ticket, media=asked.sources))

    def turn(self) -> None:
        for worker in self.workers:
            worker.turn(0.0)
        for data in self.memory.inboxes[ENGINE_INBOX].receive_many(256, timeout=0):
            self._take(unpack(data))

    def run_until(self, reached: Callable[[], bool]) -> None:
        end = monotonic() + SECONDS
        while not reached():
            assert monotonic() < end, "a request is stuck"
            self.turn()

    def answer(self, uid: int) -> list[int]:
        self.run_until(lambda: len(self.tokens[uid]) >= TOKENS)
        return [self.tokens[uid][number] for number in range(TOKENS)]

    def used_pages(self) -> dict[str, int]:
        return {name: pool.used_pages() for name, pool in self.memory.pools.items()}

    def _take(self, message: Message) -> None:
        assert not isinstance(message, Failed), message
        if isinstance(message, Report):
            for token in message.tokens:
                self.tokens[token.uid][token.number] = token.token.token
        elif isinstance(message, Drained):
            assert self.memory.reclaim(message.uid) == 0, "pages were left behind"
            self.drained.add(message.uid)


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
    image = tmp_path_factory.mktemp("images") / "image.png"
    Image.fromarray(clips(12).frames[3]).save(image)
    paths = {"image": image, "video": clips(12).path}
    made = {}
    for name, question in questions.items():
        media, sources, first = plans(processor, question.case, MediaOptions(num_frames=-1)), [], 0
        for plan in media:
            sources.append(MediaSource(plan=plan, name=plan.kind, first_unit=first, path=str(paths[plan.kind])))
            first += plan.units
        made[name] = Asked(processor.prompt(question.case.messages, media).token_ids, media, sources)
    return made


@pytest.fixture(scope="module")
def expected(hf: Reference, questions: dict[str, Question]) -> dict[str, list[int]]:
    hf.model.generation_config.eos_token_id, eos = None, hf.model.generation_config.eos_token_id
    try:
        return {name: hf.generate(question.case, TOKENS) for name, question in questions.items()}
    finally:
        hf.model.generation_config.eos_token_id = eos


@pytest.fixture(scope="module", params=PLACED, ids=lambda placement: placement.name)
def workers(request: pytest.FixtureRequest, checkpoint: Path, processor: Processor) -> Iterator[Workers]:
    workers = Workers(request.param, checkpoint, processor)
    yield workers
    workers.close()


def test_answers_are_those_of_transformers(
    workers: Workers, asked: dict[str, Asked], expected: dict[str, list[int]]
) -> None:
    for uid, question in enumerate(asked.values(), 1):
        workers.submit(uid, question)
    answers = {name: workers.answer(uid) for uid, name in enumerate(asked, 1)}
    assert answers == expected
    assert set(workers.used_pages().values()) == {0}


@pytest.mark.parametrize("turns", [0, 1, 4, 16, 64])
def test_an_abort_leaves_nothing_behind(
    workers: Workers, asked: dict[str, Asked], expected: dict[str, list[int]], turns: int
) -> None:
    """Wherever the request is by then, and whoever runs beside it."""
    aborted, other = 100 + 2 * turns, 101 + 2 * turns
    workers.submit(aborted, asked["both"], count=400)
    workers.submit(other, asked["image"])
    for _ in range(turns):
        workers.turn()
    workers.send(Stage.VISION, Abort(aborted))
    workers.run_until(lambda: aborted in workers.drained)
    assert workers.answer(other) == expected["image"]
    assert set(workers.used_pages().values()) == {0}


def test_an_abort_in_the_middle_of_the_answer(workers: Workers, asked: dict[str, Asked]) -> None:
    workers.submit(50, asked["both"], count=400)
    workers.run_until(lambda: len(workers.tokens[50]) > 3)
    workers.send(Stage.VISION, Abort(50))
    workers.run_until(lambda: 50 in workers.drained)
    assert set(workers.used_pages().values()) == {0}
