"""Judge how long a worker may show no sign of life, by its activity."""

from typing import NamedTuple

_LONGEST_TURN = 40  # times the patience, of a worker that computes


class Vitals(NamedTuple):
    """Describe what can be seen of a worker from outside: `computed` are nanoseconds of processor time."""

    turns: int
    waits: bool
    computed: int


class Silence:
    """Count the looks at one worker in which it showed no sign of life. It has no clock: a late look counts once."""

    def __init__(self, patience: int, trifle: int = 0) -> None:
        """Take a worker to hang after `patience` looks. One that computes has many times as many.

        Up to `trifle` nanoseconds of processor time between two looks are no sign of life.
        """
        self._patience = patience
        self._trifle = trifle
        self._last = Vitals(-1, False, -1)
        self.still = 0  # looks without a new turn or more than a trifle of processor time
        self._same_turn = 0  # looks without a new turn

    def look(self, now: Vitals) -> None:
        """Compare a worker with what was seen of it before."""
        same_turn = now.turns == self._last.turns
        same_time = 0 <= now.computed - self._last.computed <= self._trifle  # less: a child has ended
        self._same_turn = self._same_turn + 1 if same_turn else 0
        self.still = self.still + 1 if same_turn and same_time else 0
        self._last = now

    def end(self) -> None:
        """Forget what was seen of the worker before: it lives."""
        self._last = Vitals(-1, False, -1)
        self.still = self._same_turn = 0

    @property
    def hangs(self) -> bool:
        """Tell whether the worker has been silent for too long."""
        if self._last.waits:
            return self._same_turn >= self._patience
        return self.still >= self._patience or self._same_turn >= _LONGEST_TURN * self._patience
