"""Work in threads that goes on to its end, whoever stops waiting for it."""

import asyncio
import threading

import pytest

from unifiedserve.engine.threads import in_thread, open_in_thread


class Work:
    """What a thread does until it is let go on."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.ended = False
        self._loop = asyncio.get_running_loop()
        self._begun = asyncio.Event()

    def do(self, *given: object) -> "Work":
        self._loop.call_soon_threadsafe(self._begun.set)
        self.goes_on.wait()
        self.ended = True
        return self

    async def begun(self) -> None:
        await self._begun.wait()


async def cancel_thrice(task: "asyncio.Task[object]") -> None:
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def waits_for(work: Work, task: "asyncio.Task[object]") -> None:
    """Cancel a task again and again while it waits for some work. It must wait on, and end cancelled."""
    await cancel_thrice(task)
    gave_up = task.done()
    work.goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.ended
    assert not gave_up


async def test_a_caller_that_is_cancelled_again_and_again_waits_for_the_end() -> None:
    work = Work()
    task: asyncio.Task[object] = asyncio.create_task(in_thread(work.do))
    await work.begun()
    await waits_for(work, task)


async def test_what_is_opened_is_closed_however_often_the_caller_is_cancelled() -> None:
    opening, closing = Work(), Work()
    task: asyncio.Task[object] = asyncio.create_task(open_in_thread(opening.do, closing.do))
    await opening.begun()
    await cancel_thrice(task)
    opening.goes_on.set()
    await closing.begun()
    await waits_for(closing, task)
