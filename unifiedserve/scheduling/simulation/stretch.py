"""Run steps alike in a row as one task, until something may change the next."""

from unifiedserve.scheduling.simulation.machine import Task
from unifiedserve.scheduling.turn import Key

_ROUNDING = 1e-9  # seconds


class Stretch:
    """Advance the same sequences step by step. Each step is longer than the one before by as much.

    Their maker is told of them as they are over. Times and lengths are in seconds; lengths are of work alone.
    """

    def __init__(self, keys: list[Key], now: float, first: float, growth: float, steps: int) -> None:
        """Plan so many steps from now on. The `first` has its length, each next one `growth` more."""
        self.keys = keys
        self.steps = steps
        self.told = 0
        self._first, self._growth = first, growth
        self._time, self._done, self._pace = now, 0.0, 0  # as far as is told, and the task's pace there
        self._task: Task | None = None

    @property
    def length(self) -> float:
        """Return how long all of its steps are."""
        return self._end(self.steps)

    @property
    def left(self) -> int:
        """Return how many steps have not begun, as far as is told."""
        return self.steps - self.told - 1

    def run(self, task: Task) -> None:
        """Note that this task is its steps."""
        self._task = task

    def over(self, *, last: bool = False) -> list[float]:
        """Return when the steps ended that are over and were not told; before them when the one told last did.

        The `last` one is over when its task is.
        """
        assert self._task
        times, most = [self._time], self.steps if last else self.steps - 1
        while self.told < most and (last or self._end(self.told + 1) <= self._task.done + _ROUNDING):
            self.told += 1
            times.append(self._reach(self._end(self.told)))
        return times

    def cut(self) -> None:
        """Let it end with the step under way, or with the one that ends now."""
        assert self._task
        if self.left <= 0:
            return
        steps = self.told
        while steps < self.steps and self._end(steps) < self._task.done - _ROUNDING:
            steps += 1
        self.steps = max(steps, self.told + 1)
        self._task.seconds = max(0.0, self._end(self.steps) - self._task.done)

    def _end(self, steps: int) -> float:
        return steps * self._first + self._growth * steps * (steps - 1) / 2

    def _reach(self, done: float) -> float:
        """Return when so much was done, by the paces at which its task went."""
        assert self._task
        paces = self._task.paces
        while self._pace + 1 < len(paces) and paces[self._pace + 1][0] <= done:
            self._advance(paces[self._pace + 1][0])
            self._pace += 1
        self._advance(done)
        return self._time

    def _advance(self, done: float) -> None:
        assert self._task
        self._time += (done - self._done) / self._task.paces[self._pace][1]
        self._done = done
