"""Decide when pages of a request have failed to travel often enough."""

_MOST = 5  # failures in a row
_SECONDS = 10.0  # that they must last at least: a worker that died is replaced in less
_APART = 60.0  # seconds without a failure, after which counting begins again


class FailedReads:
    """Count how often what a request needs could not be read from another memory."""

    def __init__(self) -> None:
        self._count = 0
        self._first = self._last = 0.0

    def note(self, now: float) -> bool:
        """Count a failure at `now`, in monotonic seconds; return whether trying again is in vain."""
        if not self._count or now - self._last > _APART:
            self._count, self._first = 0, now
        self._count, self._last = self._count + 1, now
        return self._count >= _MOST and now - self._first >= _SECONDS
