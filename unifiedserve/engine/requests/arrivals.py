"""Take requests in without blocking the event loop."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from unifiedserve.config import EngineConfig
from unifiedserve.engine.health import Health
from unifiedserve.engine.requests.intake import Intake
from unifiedserve.engine.requests.queue_time import retry_after
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.api import GenerateRequest
from unifiedserve.messages.load import EngineLoad
from unifiedserve.messages.media import MediaKind
from unifiedserve.messages.seen import RequestPlan
from unifiedserve.observe.broadcast import Broadcast
from unifiedserve.observe.tracing import TakenIn, Timeline
from unifiedserve.placement import Stage
from unifiedserve.reading.readers import Cancellation
from unifiedserve.scheduling import Outlook, Targets

R = TypeVar("R")

_MEDIA_BYTES = 2 << 30  # of a kind, of all requests in the engine, where they came as bytes
_LONG = 1 << 16  # characters of messages that take long to tokenise


class Arrivals:
    """Take requests in, up to limits.

    These are on the requests in the engine at once, and on the time that they wait.
    """

    def __init__(
        self,
        config: EngineConfig,
        intake: Intake,
        table: RequestTable,
        targets: Targets,
        health: Health,
        timeline: Timeline,
        broadcast: Broadcast,
    ) -> None:
        self._limit, self._longest_wait = config.scheduling.max_requests, config.scheduling.max_queue_time
        self._placement = config.machine.workers
        self._intake = intake
        self._table = table
        self._targets = targets
        self._health = health
        self._timeline = timeline
        self._broadcast = broadcast
        self._admitting = 0
        self._admitting_bytes: Counter[MediaKind] = Counter()
        self._light = ThreadPoolExecutor(_threads(), "arrivals")
        self._heavy = ThreadPoolExecutor(_threads(), "heavy-arrivals")  # what takes long: it must not delay short texts

    async def take(self, request: GenerateRequest) -> ActiveRequest:
        """Return the request's record, in the table, when there are workers for it.

        Raises RequestError for a request that is wrong, or when the engine is full or has come to its end.
        """
        self.check_room()
        if request.deadline is not None:
            self._check_wait(request.deadline)
        self._check_media(request)
        self._check_answers()
        self._check_encoders(request)
        active = await self._admit(request)
        self._record(active)
        await self._enter(active)
        self._announce(active)
        return active

    async def take_encoding(self, request: GenerateRequest, take: Callable[[float], ActiveRequest]) -> ActiveRequest:
        """Return a record in the table of what another node wants encoded. A thread takes it in.

        `take` is given the time (monotonic seconds), and `request` has the media. Raises RequestError as `take`.
        """
        self.check_room()
        self._check_media(request)
        now = time.monotonic()
        active = await self._prepare(request, lambda _: take(now), ActiveRequest.close)
        await self._enter(active)
        return active

    async def plan(self, request: GenerateRequest) -> RequestPlan:
        """Return what would be done for a request if it came now. Raises RequestError as `take`."""
        self.check_room()
        self._check_media(request)
        self._check_answers()
        return await self._prepare(request, partial(self._intake.plan, request, self._outlook()))

    async def _enter(self, active: ActiveRequest) -> None:
        """Add a record to the table, and return when there are workers for it."""
        self._table.add(active)
        try:
            await self._health.wait()
        except BaseException:
            self._table.release(active)
            raise

    def _check_answers(self) -> None:
        """Raise RequestError if this node answers nobody."""
        if self._placement.encodes_for_others:
            raise RequestError(
                "this server encodes images and videos for others and answers nothing itself: ask the cluster's router",
                ErrorKind.UNAVAILABLE,
            )

    def _check_encoders(self, request: GenerateRequest) -> None:
        """Raise RequestError if other nodes have to encode a request's media, and none was named."""
        if self._placement.encoded_elsewhere and request.media and not request.encode_nodes:
            raise RequestError(
                "this server leaves images and videos to encode nodes, and knows of none: ask the cluster's router, "
                "and have a pool with --placement v+e",
                ErrorKind.UNAVAILABLE,
                retry_after=1,
            )

    def check_room(self) -> None:
        """Raise RequestError if the engine is full, or has come to its end."""
        self._health.check()
        if len(self._table) + self._admitting >= self._limit:
            raise self._busy(f"the server is busy with {self._limit} requests; try again later")
        if self._longest_wait:
            self._check_wait(self._longest_wait)

    def _check_wait(self, allowed: float) -> None:
        """Raise RequestError if one more request would wait longer than that, by an estimate."""
        wait = self._table.queue.wait(self._table.waiting + self._admitting)
        if wait is not None and wait > allowed:
            raise RequestError(
                f"the requests before this one need about {wait:.0f} s, and it may wait {allowed:g} s; try again later",
                ErrorKind.BUSY,
                code="too_many_requests",
                retry_after=retry_after(wait - allowed),
            )

    def _check_media(self, request: GenerateRequest) -> None:
        """Raise RequestError if media of a kind take too much memory together. A request alone may."""
        if not (brought := _bytes(request)):
            return
        held = sum((active.media_bytes for active in self._table), self._admitting_bytes)
        for kind, size in brought.items():
            if held[kind] and held[kind] + size > _MEDIA_BYTES:
                raise self._busy(f"the server holds {held[kind] >> 20} MiB of {kind}s of others; try again later")

    def _busy(self, message: str) -> RequestError:
        wait = retry_after(self._table.queue.wait(1) or 0)
        return RequestError(message, ErrorKind.BUSY, code="too_many_requests", retry_after=wait)

    def close(self) -> None:
        """Let the threads end; requests that wait for one are not begun."""
        for executor in (self._light, self._heavy):
            executor.shutdown(wait=False, cancel_futures=True)

    def load(self) -> EngineLoad:
        """Return how busy the engine is; the pages of its pools are for others to tell."""
        outlook, left, tally = self._outlook(), self._table.left(), self._table.tally
        return EngineLoad(
            in_flight=len(self._table) + self._admitting,
            waiting=self._table.waiting + self._admitting,
            wait=outlook.wait,
            visual_tokens=left[Stage.ENCODE],
            prompt_tokens=left[Stage.PREFILL],
            streams=sum(active.begun for active in self._table),
            costs=outlook.costs,
            backlog=self._table.backlog,
            work=tally.work,
            first_tokens=tally.first_tokens,
            on_time=tally.on_time,
        )

    def _outlook(self) -> Outlook:
        queued = self._table.queue.wait(self._table.waiting + self._admitting) or 0.0
        return Outlook(max(queued, self._table.backlog), self._targets.costs)

    async def _admit(self, request: GenerateRequest) -> ActiveRequest:
        outlook = Outlook() if request.max_ttft is None else self._outlook()
        take = partial(self._intake.take, request, time.monotonic(), outlook)
        return await self._prepare(request, take, ActiveRequest.close)

    async def _prepare(
        self,
        request: GenerateRequest,
        work: Callable[[Cancellation], R],
        discard: Callable[[R], None] = lambda _: None,
    ) -> R:
        """Return what `work` on a request returns, done in a thread.

        It is cancelled when nobody waits any more; then `discard` takes what it returns.
        """
        size = _bytes(request)  # intake takes them out of it
        executor = self._heavy if _is_heavy(request) else self._light
        unwanted = Cancellation()
        preparing = executor.submit(work, unwanted)
        self._admitting += 1
        self._admitting_bytes += size
        waiting = asyncio.wrap_future(preparing)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            waiting.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody else looks
            if not preparing.cancel():  # it has begun
                unwanted.cancel()
                preparing.add_done_callback(partial(_discard, discard))
            raise
        finally:
            self._admitting -= 1
            self._admitting_bytes.subtract(size)

    def _record(self, active: ActiveRequest) -> None:
        """Put on the timeline what was done so far."""
        if fetched := active.planned.request.fetched:
            self._timeline.take_in(TakenIn(active.id, "fetch", *fetched))
        self._timeline.take_in(TakenIn(active.id, "analyse", active.arrival, time.monotonic()))

    def _announce(self, active: ActiveRequest) -> None:
        tokens, media = len(active.planned.prompt.token_ids), active.planned.media
        self._broadcast.admitted(active.viewer, active.id, active.arrival, tokens, media)


def _bytes(request: GenerateRequest) -> Counter[MediaKind]:
    """Return the bytes that a request brings, by kind. A medium that it has several times counts once."""
    brought: Counter[MediaKind] = Counter()
    for kind, data in {id(medium.data): (medium.kind, medium.data) for medium in request.media if medium.data}.values():
        brought[kind] += len(data)
    return brought


def _threads() -> int:
    return max(2, len(os.sched_getaffinity(0)))


def _is_heavy(request: GenerateRequest) -> bool:
    return bool(request.media) or sum(map(_characters, request.messages)) > _LONG


def _characters(message: Mapping[str, Any]) -> int:
    content = message.get("content") or ""
    return len(content) if isinstance(content, str) else sum(len(part.get("text", "")) for part in content)


def _discard(discard: Callable[[R], None], prepared: Future[R]) -> None:
    """Let go of what was made of a request whose client left meanwhile."""
    if not prepared.cancelled() and prepared.exception() is None:
        discard(prepared.result())
