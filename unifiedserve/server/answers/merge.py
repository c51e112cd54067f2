"""Read several requests to the engine as if they were one."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from unifiedserve.messages.api import Delta


async def merged(streams: Sequence[AsyncGenerator[Delta, None]], answers: int) -> AsyncGenerator[Delta, None]:
    """Yield deltas as they come. Answer i of stream r becomes number r × `answers` + i.

    The first failure, and closing this generator, end all of them.
    """
    queue: asyncio.Queue[Delta | Exception | None] = asyncio.Queue()

    async def read(number: int, stream: AsyncGenerator[Delta, None]) -> None:
        try:
            async for delta in stream:
                delta.index += number * answers
                queue.put_nowait(delta)
            queue.put_nowait(None)
        except Exception as error:
            queue.put_nowait(error)
        finally:
            await stream.aclose()

    tasks = [asyncio.create_task(read(number, stream)) for number, stream in enumerate(streams)]
    reading = len(tasks)
    try:
        while reading:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                reading -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
