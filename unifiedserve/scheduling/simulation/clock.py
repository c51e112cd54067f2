"""Simulate time."""

import heapq
import itertools
from collections.abc import Callable

Action = Callable[[], None]


class Clock:
    """Order actions by their times (seconds). Those of one time keep the order in which they were made."""

    def __init__(self) -> None:
        self.now = 0.0
        self._actions: list[tuple[float, int, Action]] = []
        self._numbers = itertools.count()

    @property
    def next(self) -> float:
        """Return the time of the next action; infinity without any."""
        return self._actions[0][0] if self._actions else float("inf")

    def at(self, time: float, action: Action) -> None:
        """Let something happen at a time, not before now."""
        heapq.heappush(self._actions, (max(time, self.now), next(self._numbers), action))

    def after(self, seconds: float, action: Action) -> None:
        """Let something happen so many seconds from now."""
        self.at(self.now + seconds, action)

    def happen(self) -> None:
        """Let everything happen whose time has come."""
        while self._actions and self._actions[0][0] <= self.now:
            heapq.heappop(self._actions)[2]()
