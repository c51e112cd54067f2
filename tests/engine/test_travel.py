"""Pages that travel: what is computed in one memory and goes on in another is as if there were one."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from checkpoints import find_checkpoint
from every_family import FAMILIES
from family_questions import questions
from inline_workers import Asked, InlineWorkers, as_sent
from media import Clip
from taken_pages import taken_at_once

from ipc_buffers import PagePool
from unifiedserve.carriers.base import Carrier, Copy, Done
from unifiedserve.config import EngineConfig
from unifiedserve.engine.caches import contents_of
from unifiedserve.memory.device_pages import DevicePages
from unifiedserve.memory.shared import SharedMemory
from unifiedserve.messages.media import ExpandedPrompt
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.wire import Count
from unifiedserve.models.registry import load_processor
from unifiedserve.placement import Stage, read_placement
from unifiedserve.worker import assembly
from unifiedserve.worker.language.foreign_prompts import ForeignPrompts
from unifiedserve.worker.port import Port
from unifiedserve.worker.spec import WorkerSpec

CONFIG = EngineConfig.of(prefill_chunk_tokens=16, vision_threads=1, encode_budget_tokens=1)
ANSWER = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
ONE = "e+p+d"
BACK = "ed+p@mem1"  # refused where answers hold visual tokens
PLACEMENTS = ["e+p@mem1+d@mem2", "ep+d@mem1", "e+pd@mem1", BACK, "2e+2p@mem1+2d@mem2"]
EARLY = {*PLACEMENTS[:2], BACK}  # where decode alone takes pages of a KV cache
KEEPS = "mllama"
FAMILIES_TRIED = ["qwen2_5_vl", KEEPS, "qwen3_5", "gemma3"]  # with kept visual rows, with states, with whole units
RELEASE = DevicePages.release

Start = Callable[[str], InlineWorkers]


@pytest.fixture
def start(
    family: str, carrier: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Start]:
    """Start the workers of a placement; somebody writes to pages as soon as they come free."""
    if carrier == "nixl":
        pytest.importorskip("nixl", reason="nixl is not installed")
    config = CONFIG.changed(carrier=carrier)
    monkeypatch.setattr(DevicePages, "release", taken_at_once(DevicePages.release))
    checkpoint = find_checkpoint(tmp_path_factory, family)
    started: list[InlineWorkers] = []

    def workers(placement: str) -> InlineWorkers:
        placed = read_placement(placement, (0, 1))
        started.append(InlineWorkers(placed, checkpoint, load_processor(checkpoint), config))
        return started[-1]

    yield workers
    for each in started:
        each.close()


@pytest.fixture
def asked(family: str, clips: Callable[[int], Clip], tmp_path: Path, start: Start) -> list[Asked]:
    processor = start(ONE).processor
    return [as_sent(each, processor, clips, tmp_path) for each in questions(FAMILIES[family], clips).values()]


def answers(workers: InlineWorkers, asked: Sequence[Asked]) -> list[list[int]]:
    """Return the answers to all, asked at once, every second one twice; then nothing is left of them."""
    for uid, question in enumerate(asked, 1):
        workers.submit(uid, question, ANSWER, answers=1 + uid % 2)
    found = [workers.answer(uid) for uid in range(1, len(asked) + 1)]
    for uid in range(1, len(asked) + 1):
        workers.abort(uid)
    workers.run_until(lambda: len(workers.drained) == len(asked))
    assert set(workers.used_pages().values()) == {0}
    return found


def references(workers: InlineWorkers) -> list[dict[str, dict[int, int]]]:
    """Return what each stage of each worker counts of shared pages, hosted there or not."""
    names = workers.memory.layout.instances
    for name in names:
        for stage in Stage:
            workers.send(name, Count(1, stage))
    workers.run_until(lambda: len(workers.heard) == len(names) * len(Stage))
    return [heard.shared for heard in workers.heard]


@pytest.mark.parametrize(
    ("family", "carrier"),
    [*((family, "shared") for family in FAMILIES_TRIED), ("qwen2_5_vl", "tcp"), ("qwen2_5_vl", "nixl")],
)
def test_answers_are_those_within_one_memory(
    family: str, start: Start, asked: list[Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    early: list[int] = []
    begin = ForeignPrompts.begin

    def noted(prompts: ForeignPrompts, uid: int, count: int) -> bool:
        early.append(uid)
        return begin(prompts, uid, count)

    monkeypatch.setattr(ForeignPrompts, "begin", noted)
    expected = answers(start(ONE), asked)
    for placement in (each for each in PLACEMENTS if (family, each) != (KEEPS, BACK)):
        workers = start(placement)
        assert answers(workers, asked) == expected
        pulled = [span for span in workers.spans if span.name == "pull"]
        assert pulled
        assert all(span.bytes > 0 for span in pulled)
        assert references(workers) == [{}] * len(Stage) * len(workers.memory.layout.instances)
        assert bool(early) == (placement in EARLY), "pages of some chunks are read before those of the last one"
        early.clear()


class Unruly:
    """A carrier whose transfers end late."""

    def __init__(self, carrier: Carrier, wake: Callable[[], None], choose: random.Random) -> None:
        self._carrier = carrier
        self._wake = wake
        self._choose = choose
        self._late: list[Done] = []
        self.address = carrier.address

    def read(self, address: str, copies: Sequence[Copy]) -> int:
        return self._carrier.read(address, copies)

    def poll(self) -> list[Done]:
        self._late += self._carrier.poll()
        ended = [done for done in self._late if self._choose.random() < 0.3]
        self._late = [done for done in self._late if done not in ended]
        if self._late:
            self._wake()
        return ended

    def close(self, transfer: int) -> None:
        self._carrier.close(transfer)
        self._late = [done for done in self._late if done.transfer != transfer]

    def shut(self) -> None:
        self._carrier.shut()

    def register(self, pools: Mapping[str, PagePool]) -> None:
        self._carrier.register(pools)


@pytest.mark.parametrize(
    ("family", "placement", "carrier"),
    [
        *(("qwen2_5_vl", each, "shared") for each in PLACEMENTS),
        (KEEPS, PLACEMENTS[-1], "shared"),
        ("qwen2_5_vl", PLACEMENTS[0], "tcp"),
    ],
)
def test_aborts_at_any_time_leave_nothing(
    start: Start, asked: list[Asked], placement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of the requests are called back after so many turns, wherever they are; the others never notice."""
    choose = random.Random(placement)
    make = assembly.carrier_of

    def unruly(spec: WorkerSpec, memory: SharedMemory, port: Port) -> Unruly:
        return Unruly(make(spec, memory, port), port.outbox.bell.ring, choose)

    expected = answers(start(ONE), asked)
    monkeypatch.setattr(assembly, "carrier_of", unruly)
    workers = start(placement)
    for _ in range(6):
        uids = {uid: choose.randrange(len(asked)) for uid in range(len(workers.drained) + 1, len(workers.drained) + 5)}
        for uid, number in uids.items():
            workers.submit(uid, asked[number], ANSWER, answers=1 + number % 2)
        unwanted = [uid for uid in uids if choose.random() < 0.6]
        for uid in unwanted:
            for _ in range(choose.randrange(30)):
                workers.turn()
            workers.abort(uid)
        for uid in uids.keys() - unwanted:
            assert workers.answer(uid) == expected[uids[uid]]
            workers.abort(uid)
        workers.run_until(lambda uids=uids: uids.keys() <= workers.drained)  # type: ignore[misc]
        assert set(workers.used_pages().values()) == {0}


@pytest.mark.parametrize(
    ("family", "carrier"), [("qwen2_5_vl", "shared"), pytest.param(KEEPS, "tcp", marks=pytest.mark.long)]
)
def test_visual_tokens_are_read_where_another_memory_has_them(
    start: Start, asked: list[Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless they are gone by then: the request has to start anew."""
    monkeypatch.setattr(DevicePages, "release", RELEASE)  # free pages keep what they hold
    workers = start("vepd@mem0+vepd@mem1")
    question = max(asked, key=lambda each: len(each.media))
    prompt = ExpandedPrompt(question.token_ids, question.media, list(range(len(question.media))))
    attends = workers.processor.keeps_visual_rows
    digests = [bytes([number]) for number in range(len(question.media))]
    contents = contents_of(
        prompt, workers.processor.visual_ids.values(), digests, CONFIG.memory.kv_page_tokens, attends
    )

    def ask(uid: int, instance: str) -> None:
        known = workers.caches.look_up(instance, question.token_ids, contents, whole=True)
        assert bool(known.reuse.offers) == (uid > 1)
        workers.submit(uid, question, ANSWER, known=known)

    ask(1, "all-1")
    expected = workers.answer(1)
    workers.spans.clear()
    ask(2, "all-2")
    assert workers.answer(2) == expected
    pulled = [span for span in workers.spans if span.name == "pull"]
    assert [(span.stage, span.requests) for span in pulled] == [(Stage.PREFILL, [2])]
    assert not [span for span in workers.spans if span.stage in (Stage.VISION, Stage.ENCODE)]
    for uid in (1, 2):
        workers.abort(uid)
    workers.run_until(lambda: len(workers.drained) == 2)
    first, second = workers.memory.named("visual").values()
    second.release(second.allocate(second.num_pages, 9))  # what the second one has read is gone
    known = workers.caches.look_up("all-2", question.token_ids, contents, whole=True)
    first.release(first.allocate(first.num_pages, 9))  # and now what it could have read once more
    workers.submit(3, question, ANSWER, known=known)
    workers.run_until(lambda: workers.stale == {3})
    assert set(workers.used_pages().values()) == {0}
