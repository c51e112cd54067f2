"""Limit how often something may be done in any minute, by a token bucket."""

_MINUTE = 60.0  # seconds


class Bucket:
    """Hold the allowance left at a time (seconds of any clock). It fills up again within a minute."""

    def __init__(self, a_minute: int, now: float) -> None:
        self._a_minute = a_minute
        self._left = float(a_minute)
        self._since = now

    def wait(self, now: float) -> float:
        """Return the seconds until it may be done once more; 0 for at once."""
        rate = self._a_minute / _MINUTE
        self._left = min(self._a_minute, self._left + (now - self._since) * rate)
        self._since = now
        return max(0.0, (1 - self._left) / rate)

    def take(self, now: float) -> float:
        """Do it once, unless that has to wait; return how long, in seconds."""
        if wait := self.wait(now):
            return wait
        self._left -= 1
        return 0.0
