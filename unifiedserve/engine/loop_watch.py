"""Watch the event loop of the engine's process: one that is held up holds up every stream."""

import asyncio
import faulthandler
import logging
import sys
import threading

_log = logging.getLogger(__name__)
_SECONDS = 5.0  # that a loop may be silent


class LoopWatch:
    """Print all threads' stacks once whenever the event loop stands still for seconds. A thread watches it."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        """Watch the loop that runs now, and complain after so many seconds."""
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._came_round = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="loop-watch", daemon=True).start()

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._came_round.set()

    def _watch(self) -> None:
        while not self._closed.is_set():
            self._came_round.clear()
            try:
                self._loop.call_soon_threadsafe(self._came_round.set)
            except RuntimeError:  # it is closed
                return
            if not self._came_round.wait(self._seconds):
                self._complain()
                self._came_round.wait()
            self._closed.wait(self._seconds / 2)

    def _complain(self) -> None:
        _log.error("the event loop has stood still for %g s; the stacks of all threads are below", self._seconds)
        if sys.__stderr__ is not None:
            faulthandler.dump_traceback(sys.__stderr__)
