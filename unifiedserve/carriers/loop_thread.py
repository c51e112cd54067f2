"""Run an event loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine


class LoopThread:
    """Run coroutines. Those that have not ended when it ends are cancelled."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="carrier", daemon=True)
        self._thread.start()

    def begin(self, work: Coroutine[object, object, None]) -> None:
        """Have a coroutine run; any thread may call this."""
        self._loop.call_soon_threadsafe(self._begin, work)

    def end(self) -> None:
        """Return when all have been cancelled. Idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._wait())

    async def _wait(self) -> None:
        await self._ended.wait()
