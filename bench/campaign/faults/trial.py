"""Faults of workers, one after the other, in a running engine: each request gets its very answer or one clear error."""

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import msgspec

from bench.campaign.cases import ViolationError
from bench.campaign.faults.kinds import FAULTS, Fault
from bench.campaign.faults.load import Asked, draw, mixed, stream
from bench.campaign.travel import Answers, Question
from unifiedserve.config import EngineConfig
from unifiedserve.engine import recovery
from unifiedserve.engine.engine import Engine
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.wire import PagesFreed
from unifiedserve.placement import Placement, Stage, letters_of

NAME = "faults"
TIMEOUT = 3.0  # seconds after which a worker that shows no sign of life is replaced
_OPTIONS: dict[str, Any] = {
    "dtype": "float32",
    "visual_buffer_mib": 1,
    "visual_cache_mib": 1,
    "prefill_chunk_tokens": 64,
    "max_model_len": 2048,
    "sandbox": "off",
    "worker_timeout": TIMEOUT,
}
_AGAIN = 0.15  # of the faults that end a worker end another one while it is replaced
_WHOLE_SECONDS = 60.0  # in which workers must have been replaced, and all requests have ended
_TWICE = frozenset({ErrorKind.HARMFUL})  # a request that was with both workers may be held to be the cause


class Case(NamedTuple):
    """A fault, where it strikes, and what is asked meanwhile. `pieces` of answers come before it."""

    index: int
    fault: Fault
    stage: Stage
    asked: Sequence[Asked]
    pieces: int
    again: bool
    choice: int  # of a worker among those of the stage


class Seen(msgspec.Struct):
    """What came of a fault: seconds, and prompt tokens of streams that were computed again.

    `gap` is the longest one of a stream after the fault, `back` is until the next worker serves.
    """

    index: int
    placement: str
    fault: str
    stage: str
    victim: str
    hosts: str
    again: bool
    replaced: bool = False
    gap: float | None = None
    recomputed: int = 0
    back: float | None = None
    drained: float = 0.0
    statuses: dict[str, int] = {}


def case(seed: int, index: int, faults: Sequence[Fault] = FAULTS) -> Case:
    """Make a case from the seed and its number."""
    random = Random(f"{seed}:{NAME}:{index}")
    fault = random.choices(faults, [each.weight for each in faults])[0]
    return Case(
        index=index,
        fault=fault,
        stage=random.choice(list(Stage)),
        asked=draw(random, random.randrange(3, 7)),
        pieces=int(random.expovariate(1 / 30)),
        again=fault.deadly and not fault.engine and random.random() < _AGAIN,
        choice=random.randrange(100),
    )


@contextlib.asynccontextmanager
async def engine(placement: str, kv_cache_mib: int = 16, patch_buffer_mib: int = 2) -> AsyncIterator[Engine]:
    """Start an engine with small buffers that never gives up because of how many of its workers have died."""
    sizes = {"kv_cache_mib": kv_cache_mib, "patch_buffer_mib": patch_buffer_mib}
    own = Engine(EngineConfig.of(**_OPTIONS, **sizes, placement=placement))
    with mock.patch.object(recovery, "_RESTART_SECONDS", 0.0):
        await own.start()
        try:
            yield own
        finally:
            await own.stop()


class Client:
    """Asks one question and notes when each piece of its answers came."""

    def __init__(self, engine: Engine, question: Question, name: str, leaves: int | None = None) -> None:
        """`leaves`: after so many pieces."""
        self.name = name
        self.times: list[float] = []
        self.answers: Answers = [[] for _ in range(question.answers)]
        self._engine = engine
        self._question = question
        self._leaves = leaves

    async def run(self) -> None:
        """Ask, and take the answers in. Raises RequestError."""
        async with contextlib.aclosing(self._engine.generate(self._question.request(self.name))) as answer:
            async for delta in answer:
                self.times.append(time.monotonic())
                self.answers[delta.index] += delta.token_ids
                if self._leaves is not None and len(self.times) > self._leaves:
                    return

    def judge(self, right: Answers) -> str:
        """Return how it ended. Raises ViolationError for an answer, or the beginning of one, that is not right."""
        left = self._leaves is not None and len(self.times) > self._leaves
        known = [tokens[: len(own)] for tokens, own in zip(right, self.answers, strict=True)] if left else right
        if self.answers != known:
            raise ViolationError(f"{self.name}: {self.answers} in place of {known}")
        return "left" if left else "exact"

    def longest_gap(self, since: float) -> float | None:
        """Return the longest time between two pieces of which the later came after a moment; None if none did."""
        return max((later - sooner for sooner, later in pairwise(self.times) if later > since), default=None)


async def expected(own: Engine, stream_tokens: int) -> list[Answers]:
    """Return an engine's answers to all questions, asked one by one, and at last to a stream's."""
    found = []
    for question in [*mixed(), stream(stream_tokens)]:
        client = Client(own, question, question.name)
        await client.run()
        found.append(client.answers)
    return found


class Trial:
    """Strikes the workers of an engine."""

    def __init__(self, engine: Engine, right: Sequence[Answers], streams: int, stream_tokens: int) -> None:
        """`right` answers are as of `expected`; so many streams run beside each fault."""
        self._engine = engine
        self._right = right
        self._streams = streams
        self._stream_tokens = stream_tokens
        self._placement: Placement = engine.config.machine.workers
        self.pids: set[int] = set()  # of all workers that there have been

    async def run(self, case: Case) -> Seen:
        """Try a case. Raises ViolationError for what must not be, or does not end."""
        pids, hosts = self._worker_pids(), self._placement.hosts(case.stage)
        victim = hosts[case.choice % len(hosts)]
        seen = Seen(
            index=case.index,
            placement=self._engine.config.machine.placement,
            fault=case.fault.name,
            stage=case.stage.value,
            victim=victim,
            hosts=letters_of(self._placement.named(victim).stages),
            again=case.again,
        )
        streams, others = self._clients(case)
        clients = [*streams, *others]
        ended = [asyncio.create_task(client.run()) for client in clients]
        try:
            async with asyncio.timeout(_WHOLE_SECONDS):
                began = await self._strike(case, pids[victim], clients, ended, seen)
        except TimeoutError:
            waiting = [client.name for client, task in zip(clients, ended, strict=True) if not task.done()]
            raise ViolationError(f"{waiting} had no end, and {self._unlike(pids)} were replaced") from None
        finally:
            for task in ended:
                task.cancel()
        rights = [self._right[-1]] * len(streams) + [self._right[each.number] for each in case.asked]
        seen.statuses = dict(Counter(map(partial(_status, case), clients, ended, rights)))
        seen.gap = max((gap for client in streams if (gap := client.longest_gap(began)) is not None), default=None)
        seen.recomputed = self._recomputed(streams, began)
        if not case.fault.engine:
            await self._check_drained(seen)
            self._check_others(case, victim, pids)
        return seen

    def _clients(self, case: Case) -> tuple[list[Client], list[Client]]:
        """Return the streams of a case, and who asks all else."""
        tokens = self._stream_tokens
        streams = [Client(self._engine, stream(tokens), f"{case.index}-s{each}") for each in range(self._streams)]
        others = [
            Client(self._engine, mixed()[each.number], f"{case.index}-{number}", each.leaves)
            for number, each in enumerate(case.asked)
        ]
        return streams, others

    async def _strike(
        self, case: Case, pid: int, clients: Sequence[Client], ended: Sequence["asyncio.Task[None]"], seen: Seen
    ) -> float:
        """Have the fault when its time has come, and return when that was, once all has ended and serves again."""
        while sum(len(client.times) for client in clients) < case.pieces and not all(task.done() for task in ended):
            await asyncio.sleep(0.001)
        began = time.monotonic()
        with case.fault.strike(pid):
            if case.again or case.fault.engine:
                await self._engine.wait_for(lambda: not self._engine.healthy)
            if case.again:
                await self._kill_beside(seen.victim, pid)
            if case.fault.deadly and not case.fault.engine:
                await self._engine.wait_for(lambda: self._serves(seen.victim, pid))
                seen.back = time.monotonic() - began
            await asyncio.wait(ended)
        if not case.fault.engine:
            await self.settle(seen.victim, pid)
        seen.replaced = self._worker_pids().get(seen.victim) != pid
        return began

    async def settle(self, victim: str, pid: int) -> None:
        """Return when the victim has come round or another one serves: no late end of it is the next fault's."""
        began = self._engine.observation.turns(victim)

        def settled() -> bool:
            return self._serves(victim, pid) or self._engine.observation.turns(victim) > began + 1

        while not (self._engine.healthy and settled()):
            self._engine._started.workers.send(victim, PagesFreed())  # else it waits for work
            await asyncio.sleep(0.01)

    async def _kill_beside(self, victim: str, dead: int) -> None:
        """Kill the worker beside the one that has just died, or the next one of its own if there is no other."""
        names = [instance.name for instance in self._placement.instances]
        other = names[(names.index(victim) + 1) % len(names)]
        await self._engine.wait_for(lambda: self._worker_pids()[other] != dead)
        os.kill(pid := self._worker_pids()[other], signal.SIGKILL)
        await self._engine.wait_for(lambda: self._worker_pids()[other] != pid)

    def _serves(self, name: str, pid: int) -> bool:
        return self._engine.healthy and self._worker_pids().get(name) not in (None, pid)

    def _worker_pids(self) -> dict[str, int]:
        pids = self._engine.observation.worker_pids()
        self.pids.update(pids.values())
        return pids

    def _recomputed(self, streams: Iterable[Client], since: float) -> int:
        """Return the prompt tokens of steps after a moment in which streams were that had begun before it."""
        spans = {
            (span.start, span.instance): span.tokens
            for client in streams
            if client.times and client.times[0] < since
            for span in self._engine.observation.timeline(client.name)
            if span.stage is Stage.PREFILL and span.start > since
        }
        return sum(spans.values())

    async def _check_drained(self, seen: Seen) -> None:
        """Wait until no page is in use, and hold the pools' books to what they must be."""
        began, observed = time.monotonic(), self._engine.observation
        try:
            async with asyncio.timeout(_WHOLE_SECONDS):
                while observed.in_flight or any(used for used, _ in observed.buffers().values()):
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise ViolationError(f"{observed.in_flight} are in flight, pages: {observed.buffers()}") from None
        seen.drained = time.monotonic() - began
        self._engine.observation.check_integrity()

    def _check_others(self, case: Case, victim: str, pids: dict[str, int]) -> None:
        if not case.again and (others := [name for name in self._unlike(pids) if name != victim]):
            raise ViolationError(f"{others} were replaced, too, when {victim} had {case.fault.name}")

    def _unlike(self, pids: dict[str, int]) -> list[str]:
        """Return the instances whose workers are other ones than these."""
        now = self._worker_pids()
        return [name for name in pids if now.get(name) != pids[name]]


def _status(case: Case, client: Client, task: "asyncio.Task[None]", right: Answers) -> str:
    """Return how a client's request has ended. Raises ViolationError for an end that it must not have."""
    try:
        task.result()
    except RequestError as error:
        if error.kind not in case.fault.errors | (_TWICE if case.again else frozenset()):
            raise ViolationError(f"{client.name}: {error.kind}: {error}") from None
        return f"error: {error.kind}"
    return client.judge(right)
