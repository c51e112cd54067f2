"""Estimate a request's wait for its turn: how many wait, and how fast requests end.

By Little's law the wait is the number of waiting requests over the rate at which requests end, whatever holds them up:
decoders, the encoder, pages or places.
"""

import math
import time
from collections import deque
from collections.abc import Callable

_REMEMBERED = 32  # ends
_FEWEST = 8  # ends from which a rate is told
_LONGEST_RETRY = 60  # seconds


class QueueTime:
    """Learn from the ends of requests while others wait.

    Only then do they tell how fast a place comes free.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Measure by `clock`, in seconds."""
        self._clock = clock
        self._ends: deque[float] = deque(maxlen=_REMEMBERED)

    def ended(self, waiting: int) -> None:
        """Learn that a request has ended while so many waited for their first token."""
        if waiting:
            self._ends.append(self._clock())
        else:
            self._ends.clear()

    def wait(self, waiting: int) -> float | None:
        """Return the seconds that one more would wait behind so many; None if that is not known."""
        if not waiting:
            return 0.0
        if len(self._ends) < _FEWEST:
            return None
        return waiting * (self._clock() - self._ends[0]) / (len(self._ends) - 1)


def retry_after(seconds: float) -> int:
    """Return the whole seconds after which a client with such a wait may come again."""
    return min(max(1, math.ceil(seconds)), _LONGEST_RETRY)
