"""Pages that travel, tried: clients that leave, workers that are killed and pages that run out, in several memories.

Each placement is an engine of its own in this process, with buffers so small that requests wait and are preempted. An
answer must be, token for token, that of an engine with one memory; else the client has left, or gets one clear error.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench.campaign.cases import Outcome, ViolationError
from ipc_buffers import list_arenas
from unifiedserve import samples
from unifiedserve.config import EngineConfig
from unifiedserve.engine.engine import Engine
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.api import GenerateRequest, MediaInput
from unifiedserve.messages.media import MediaOptions
from unifiedserve.messages.sampling_params import SamplingParams

NAME = "travel"
PLACEMENTS = ("e+p@mem1+d@mem2", "ep+d@mem1", "2e+2p@mem1+2d@mem2")
_SMALL = {
    "dtype": "float32",
    "kv_cache_mib": 2,
    "patch_buffer_mib": 2,
    "visual_buffer_mib": 1,
    "visual_cache_mib": 1,
    "prefill_chunk_tokens": 64,
    "max_model_len": 2048,
    "sandbox": "off",
}
_CLIENTS = 12
_KILLS = 4  # of workers in an engine, which gives up at the sixth restart
_DRAIN_SECONDS = 1.0
_WHOLE_SECONDS = 60.0  # in which killed workers must have been replaced
SAMPLES = Path(samples.__file__).parent

Answers = list[list[int]]  # token ids


class Question(NamedTuple):
    """What is asked, and how often it is answered."""

    name: str
    content: list[dict[str, Any]]
    media: list[MediaInput]
    tokens: int
    answers: int = 1

    def request(self, number: str) -> GenerateRequest:
        """Return it as a request."""
        sampling = SamplingParams(temperature=0, max_tokens=self.tokens, n=self.answers, ignore_eos=True)
        messages = [{"role": "user", "content": self.content}]
        return GenerateRequest(id=number, messages=messages, media=self.media, sampling=sampling)


def text(said: str) -> dict[str, Any]:
    """Return a part of a message."""
    return {"type": "text", "text": said}


def video(frames: int) -> MediaInput:
    """Return a sample video of so many frames."""
    return MediaInput(kind="video", path=str(SAMPLES / "shapes-motion.mp4"), options=MediaOptions(num_frames=frames))


def questions() -> list[Question]:
    """Return texts, short and long, an image and videos; some are answered twice."""
    image = MediaInput(kind="image", path=str(SAMPLES / "shapes.jpg"))
    return [
        Question("text", [text("What is a star?")], [], 40),
        Question("long text", [text("The star is white. " * 40)], [], 90),
        Question("twice", [text("Once upon a time there was a river. " * 8)], [], 60, 2),
        Question("image", [{"type": "image"}, text("What is this?")], [image], 30),
        Question("video", [{"type": "video"}, text("What color is the star?")], [video(8)], 30),
        Question("video, twice", [{"type": "video"}, text("What moves?")], [video(4)], 50, 2),
        Question("first token", [{"type": "video"}, text("What moves?")], [video(4)], 1),
    ]


class Found(NamedTuple):
    """What came of a placement: its cases, what no case found, and figures."""

    outcomes: list[Outcome]
    findings: list[tuple[str, str]]
    figures: dict[str, object]


@contextlib.asynccontextmanager
async def _engine(**options: Any) -> AsyncIterator[Engine]:
    engine = Engine(EngineConfig.of(**_SMALL, **options))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def expected() -> list[Answers]:
    """Return the answers to all questions, from an engine with one memory, asked one by one."""
    async with _engine() as engine:
        return [await answers_of(engine, question.request(question.name)) for question in questions()]


async def answers_of(engine: Engine, request: GenerateRequest) -> Answers:
    """Return the tokens of all answers to a request."""
    found: Answers = [[] for _ in range(request.sampling.n)]
    async for delta in engine.generate(request):
        found[delta.index] += delta.token_ids
    return found


class Trial:
    """Clients of one placement, and whoever kills its workers."""

    def __init__(self, engine: Engine, placement: str, right: Sequence[Answers], indices: Sequence[int], seed: int):
        """Try the cases of these numbers, each made from the seed."""
        self.outcomes: list[Outcome] = []
        self.findings: list[tuple[str, str]] = []
        self._engine = engine
        self._placement = placement
        self._right = right
        self._seed = seed
        self._indices = indices
        self._left = iter(indices)

    async def run(self) -> None:
        """Run all cases, some at once, and kill workers meanwhile; then nothing may be left of them."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_CLIENTS):
                tasks.create_task(self._client())
            tasks.create_task(self._kill_some())
        await self._check_drained()

    async def _client(self) -> None:
        for index in self._left:
            random = Random(f"{self._seed}:{NAME}:{index}")
            number = random.randrange(len(self._right))
            fate = random.choices(("stays", "leaves", "is called back"), (4, 3, 3))[0]
            began, status, violation = time.monotonic(), "", ""
            try:
                status = await self._ask(index, number, fate, random)
            except ViolationError as error:
                violation = str(error)
            except Exception as error:
                violation = f"{type(error).__name__}: {error}"
            kind = f"{questions()[number].name}, client {fate}"
            self.outcomes.append(
                Outcome(NAME, index, kind, began, time.monotonic(), status, self._placement, violation)
            )

    async def _ask(self, index: int, number: int, fate: str, random: Random) -> str:
        """Ask a question and return how that ended. Raises ViolationError for what must not be."""
        request = questions()[number].request(str(index))
        try:
            if fate == "stays":
                answers = await answers_of(self._engine, request)
                if answers != self._right[number]:
                    raise ViolationError(f"{answers} in place of {self._right[number]}")
                return "exact"
            if fate == "leaves":
                return await self._leave(request, random.randrange(20))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(random.expovariate(4)):
                    await answers_of(self._engine, request)
            return "called back"
        except RequestError as error:
            killed = error.kind is ErrorKind.INTERNAL and "worker" in error.message  # with it for the third time
            if not killed and error.kind not in (ErrorKind.UNAVAILABLE, ErrorKind.BUSY):
                raise ViolationError(f"{error.kind}: {error}") from None
            return f"error: {error.kind}"

    async def _leave(self, request: GenerateRequest, pieces: int) -> str:
        """Leave after so many pieces of the answers."""
        async with contextlib.aclosing(self._engine.generate(request)) as answer:
            async for _ in answer:
                if not pieces:
                    break
                pieces -= 1
        return "left"

    async def _kill_some(self) -> None:
        """Kill workers, each at another point of the cases."""
        names = list(self._engine.observation.worker_pids())
        Random(f"{self._seed}:{self._placement}").shuffle(names)
        for count, name in enumerate(names[:_KILLS], 1):
            begun = count * len(self._indices) // (_KILLS + 1)
            while len(self.outcomes) < begun:
                await asyncio.sleep(0.01)
            began, pid = time.monotonic(), self._engine.observation.worker_pids()[name]
            os.kill(pid, signal.SIGKILL)
            status, violation = "replaced", ""
            try:
                async with asyncio.timeout(_WHOLE_SECONDS):
                    await self._engine.wait_for(lambda name=name, pid=pid: self._whole(name, pid))
            except TimeoutError:
                status, violation = "", f"{name} was not replaced within {_WHOLE_SECONDS:.0f} s"
            self.outcomes.append(
                Outcome(NAME, -count, f"{name} is killed", began, time.monotonic(), status, self._placement, violation)
            )

    def _whole(self, name: str, pid: int) -> bool:
        return self._engine.healthy and self._engine.observation.worker_pids().get(name) not in (None, pid)

    async def _check_drained(self) -> None:
        seen = self._engine.observation
        await asyncio.sleep(_DRAIN_SECONDS)
        if used := {f"{pool} of {memory}": pages for (memory, pool), (pages, _) in seen.buffers().items() if pages}:
            self.findings.append(("buffers", f"pages in use after {_DRAIN_SECONDS:g} s: {used}"))
        try:
            await self._engine.wait_idle()
        except Exception as error:
            self.findings.append(("integrity", f"{type(error).__name__}: {error}"))


async def run(placement: str, indices: Sequence[int], seed: int, right: Sequence[Answers]) -> Found:
    """Try cases in a placement; what is left in shared memory after the engine's end is a finding, too."""
    before = {arena.name for arena in list_arenas()}
    async with _engine(placement=placement) as engine:
        trial = Trial(engine, placement, right, indices, seed)
        await trial.run()
        figures = _figures(engine)
    if left := [arena.name for arena in list_arenas() if arena.name not in before and f"{os.getpid()}-" in arena.name]:
        trial.findings.append(("shared memory", f"{len(left)} segments left: {left[:3]}"))
    return Found(trial.outcomes, trial.findings, figures)


def _figures(engine: Engine) -> dict[str, object]:
    """Return how often pages ran out and workers were replaced, and what has travelled."""

    def value(name: str, **labels: str) -> int:
        return int(engine.metrics.registry.get_sample_value(f"unifiedserve:{name}", labels) or 0)

    return {
        "preemptions": value("num_preemptions_total"),
        "restarts": value("worker_restarts_total"),
        "KiB pulled by prefill": value("pulled_bytes_total", stage="prefill") >> 10,
        "KiB pulled by decode": value("pulled_bytes_total", stage="decode") >> 10,
    }
