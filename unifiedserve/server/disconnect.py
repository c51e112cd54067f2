"""Work that ends when its client goes away."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientGoneError(Exception):
    """Signal that the client closed the connection before its answer was complete."""


async def unless_disconnected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`. If the client disconnects first, cancels it and raises ClientGoneError.

    The request's body must have been read: the next message from `receive` is then the disconnection.
    """
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_disconnection(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnection(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
