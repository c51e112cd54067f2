"""The threads of Python that carriers need to tell their owner something."""

import threading
from collections.abc import Callable

from unifiedserve.carriers.base import Done


class Waker:
    """Calls `wake` each time `wait` returns True, until it returns False."""

    def __init__(self, wait: Callable[[], bool], wake: Callable[[], None]) -> None:
        self._wait = wait
        self._wake = wake
        self._thread = threading.Thread(target=self._run, name="carrier", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._wait():
            self._wake()

    def join(self) -> None:
        """Return when the thread has ended."""
        self._thread.join()


class Failures:
    """Transfers that have failed before anything began; their numbers are negative, as nobody else's are."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._done: list[Done] = []
        self._last = 0

    def add(self, error: str) -> int:
        """Have it told by the next `take`, and return its number."""
        self._last -= 1
        self._done.append(Done(self._last, error, 0, 0.0))
        self._wake()
        return self._last

    def take(self) -> list[Done]:
        """Return those that were added since the last call."""
        done, self._done = self._done, []
        return done

    def forget(self, transfer: int) -> None:
        """Do not tell of one."""
        self._done = [done for done in self._done if done.transfer != transfer]
