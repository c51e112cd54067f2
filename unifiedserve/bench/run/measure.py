"""Measure a run from its warm-up to its record."""

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx

from unifiedserve.bench.client.body import Bodies
from unifiedserve.bench.client.clock import Clock
from unifiedserve.bench.client.connection import without_password
from unifiedserve.bench.client.conversation import Judge, Speaker
from unifiedserve.bench.client.delivery import Media, delivered, describe, large_files
from unifiedserve.bench.client.endpoint import Endpoint
from unifiedserve.bench.client.upload import uploaded
from unifiedserve.bench.records import Run
from unifiedserve.bench.requests import Request
from unifiedserve.bench.run.loops import closed_loop, open_loop
from unifiedserve.bench.run.phases import add_trace
from unifiedserve.bench.run.plan import Manner, Plan
from unifiedserve.bench.run.progress import Bar
from unifiedserve.bench.run.server_ttft import mean_ttft, observe
from unifiedserve.bench.run.timekeeping import Timekeeper, cautions
from unifiedserve.bench.run.watch import Watch
from unifiedserve.errors import ConfigError

STOPPED = "stopped by Ctrl-C"


async def measure(
    http: httpx.AsyncClient, plan: Plan, manner: Manner, *, judge: Judge | None = None, bar: Bar | None = None
) -> Run:
    """Send what is planned and return all that came back. A run that had to end early says why.

    Cancelling ends it early, too. Raises ConfigError if media are missing, or no warm-up request is answered.
    """
    dialect = manner.target.dialect
    large = large_files(manner.delivery, plan.paths) if dialect.files else []
    told = describe(manner.delivery, plan.paths, large)
    if bar and told:
        bar.note(f"media: {told}")
    async with _ready(http, plan, manner, large) as media:
        bodies = Bodies(manner.target.model, dialect, media, manner.wishes)
        await _warm_up(http, bodies, plan.warmup)
        before = await observe(http, dialect)
        started = datetime.now(UTC)
        clock, watch = Clock(), Watch()
        keeper = Timekeeper(clock)
        speaker = Speaker(Endpoint(http, clock), bodies, clock, judge=judge, sent=watch.sent, ended=watch.ended)
        beside = [keeper.run(), *([bar.follow(watch, clock)] if bar else [])]
        async with _beside(*beside):
            interrupted = await _send(plan, speaker, clock, watch)
        seconds = clock.now()
        if bar:
            bar.show(watch, seconds)
    after = await observe(http, dialect)
    await add_trace(http, dialect, watch.records)
    timing = keeper.timing(watch.records, mean_ttft(before, after, watch.records))
    return Run(
        name=plan.name,
        command=[without_password(word) for word in sys.argv],
        started=started.isoformat(timespec="seconds"),
        seed=plan.seed,
        url=without_password(manner.url),
        model=manner.target.model,
        workload=plan.workload,
        arrivals=plan.arrivals,
        versions={"server": manner.target.version} if manner.target.version else {},
        seconds=seconds,
        records=watch.records,
        media=told,
        timing=timing,
        cautions=cautions(timing),
        interrupted=interrupted,
    )


@asynccontextmanager
async def _ready(http: httpx.AsyncClient, plan: Plan, manner: Manner, large: list[str]) -> AsyncIterator[Media]:
    """Upload the `large` files, and make the others ready to be sent."""
    async with uploaded(http, manner.target.dialect.files, large) as ids:
        with delivered(manner.delivery, plan.paths, ids) as media:
            yield media


async def _warm_up(http: httpx.AsyncClient, bodies: Bodies, requests: Iterable[Request]) -> None:
    clock, watch = Clock(), Watch()
    speaker = Speaker(Endpoint(http, clock), bodies, clock, sent=watch.sent, ended=watch.ended)
    for request in requests:
        await speaker.hold(request, clock.now())
        if watch.failed and not watch.answered:
            raise ConfigError(f"the warm-up failed, so the run was not begun: {watch.records[-1].error}")


async def _send(plan: Plan, speaker: Speaker, clock: Clock, watch: Watch) -> str | None:
    """Send everything, unless there is a reason to stop: return that."""
    if plan.users:
        requests = [arrival.request for arrival in plan.due]
        loop = closed_loop(requests, plan.users, speaker.hold, clock, plan.seconds)
    else:
        loop = open_loop(plan.due, speaker.hold)
    sending = asyncio.create_task(loop)
    ends: list[asyncio.Future[Any]] = [sending, watch.stop]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        why = watch.stop.result() if watch.stop.done() else None
    except asyncio.CancelledError:
        uncancel()
        why = STOPPED
    if why is None:
        await sending
    else:
        sending.cancel()
        await asyncio.wait([sending])
    return why


def uncancel() -> None:
    """Take back that this task was cancelled: what it has is of use."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()


@asynccontextmanager
async def _beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do other things meanwhile."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
