"""Bridge the event loop and threads."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


async def in_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a blocking function to its end in a thread. That holds even if the caller is cancelled meanwhile."""
    working = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(working)
    finally:
        await asyncio.wait([working])


async def open_in_thread(open_: Callable[[], R], close: Callable[[R], object]) -> R:
    """Return what a blocking function opens; if the caller is cancelled meanwhile, it is closed again."""
    opening = asyncio.ensure_future(asyncio.to_thread(open_))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await asyncio.wait([opening])
        if opening.exception() is None:
            await asyncio.to_thread(close, opening.result())
        raise


def on_loop(call: Callable[P, object]) -> Callable[P, None]:
    """Return a function that calls `call` on the running event loop. Other threads may call it."""
    loop = asyncio.get_running_loop()

    def schedule(*args: P.args, **kwargs: P.kwargs) -> None:
        loop.call_soon_threadsafe(partial(call, *args, **kwargs))

    return schedule
