"""Limit how much a caller may ask for: requests a minute, and at once."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cachetools import LRUCache

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.server.access.bucket import Bucket

_CALLERS = 4096  # that are remembered


class Limits:
    """Set the limits of each caller; 0: none."""

    def __init__(self, a_minute: int, at_once: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._a_minute = a_minute
        self._at_once = at_once
        self._clock = clock
        self._buckets: LRUCache[str, Bucket] = LRUCache(_CALLERS)
        self._running: Counter[str] = Counter()

    @contextmanager
    def entered(self, caller: str) -> Iterator[None]:
        """Count a request while it lasts; raise RequestError 429 for one too many."""
        if self._at_once and self._running[caller] >= self._at_once:
            raise _too_many(f"{self._at_once} requests of yours are being served, as many as may be at once", 1)
        self._take(caller)
        self._running[caller] += 1
        try:
            yield
        finally:
            self._running[caller] -= 1
            if not self._running[caller]:
                del self._running[caller]

    def _take(self, caller: str) -> None:
        if not self._a_minute:
            return
        now = self._clock()
        if wait := self._buckets.setdefault(caller, Bucket(self._a_minute, now)).take(now):
            raise _too_many(f"you have sent more than {self._a_minute} requests a minute", math.ceil(wait))


def _too_many(reason: str, seconds: int) -> RequestError:
    message = f"{reason}; try again in {seconds} s"
    return RequestError(message, ErrorKind.BUSY, code="rate_limit_exceeded", retry_after=seconds)
