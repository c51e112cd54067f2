"""Bridge the event loop and threads."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


async def in_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a blocking function to its end in a thread. That holds however often the caller is cancelled meanwhile."""
    working = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(working)
    finally:
        await _end_of(working)


async def open_in_thread(open_: Callable[[], R], close: Callable[[R], object]) -> R:
    """Return what a blocking function opens; if the caller is cancelled meanwhile, it is closed again.

    That holds however often the caller is cancelled.
    """
    opening = asyncio.ensure_future(asyncio.to_thread(open_))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await _end_of(opening)
        if opening.exception() is None:
            await in_thread(close, opening.result())
        raise


async def _end_of(working: "asyncio.Future[R]") -> None:
    """Return when it has ended. Cancellations are left out: the caller has one to pass on anyway."""
    while not working.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([working])


def on_loop(call: Callable[P, object]) -> Callable[P, None]:
    """Return a function that calls `call` on the running event loop. Other threads may call it."""
    loop = asyncio.get_running_loop()

    def schedule(*args: P.args, **kwargs: P.kwargs) -> None:
        loop.call_soon_threadsafe(partial(call, *args, **kwargs))

    return schedule
