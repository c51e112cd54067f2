"""Send by a schedule, or as so many users who wait for their answers.

A schedule holds whatever becomes of the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from unifiedserve.bench.client.clock import Clock
from unifiedserve.bench.requests import Arrival, Request

Hold = Callable[[Request, float], Awaitable[None]]


async def open_loop(arrivals: Iterable[Arrival], hold: Hold) -> None:
    """Hold every conversation in a task of its own, from when it is due."""
    async with asyncio.TaskGroup() as tasks:
        for arrival in arrivals:
            tasks.create_task(_held(hold, arrival.request, arrival.at))


async def closed_loop(requests: Iterable[Request], users: int, hold: Hold, clock: Clock, until: float) -> None:
    """Hold the conversations in their order, each when one of the users is free. It is due then.

    None begins later than `until`.
    """
    waiting = iter(requests)

    async def user() -> None:
        for request in waiting:
            if clock.now() > until:
                return
            await hold(request, clock.now())

    async with asyncio.TaskGroup() as tasks:
        for _ in range(users):
            tasks.create_task(user())


async def _held(hold: Hold, request: Request, due: float) -> None:
    await hold(request, due)
