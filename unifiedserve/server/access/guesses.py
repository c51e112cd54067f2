"""Stop addresses that show wrong keys again and again. Some times a minute are allowed."""

import ipaddress
import math
import time
from collections.abc import Callable
from contextlib import suppress

from cachetools import LRUCache

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.server.access.bucket import Bucket

_A_MINUTE = 20
_ADDRESSES = 4096  # that are remembered
_KNOWN = 4096  # pairs of an address and a key that was right
_NETWORK = 64  # bits of an address of IPv6 that somebody has for himself


class Guesses:
    """Count wrong keys by address. A key that was right there before is let pass, whatever others show there."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: LRUCache[str, Bucket] = LRUCache(_ADDRESSES)
        self._known: LRUCache[tuple[str, bytes], None] = LRUCache(_KNOWN)

    def check(self, address: str, digest: bytes) -> None:
        """Raise RequestError 429 if a key's address has shown too many wrong ones. The key is not looked for then."""
        place = _place(address)
        bucket = self._buckets.get(place)
        if bucket is None or (place, digest) in self._known:
            return
        if (wait := bucket.wait(self._clock())) > 0:
            seconds = math.ceil(wait)
            raise RequestError(
                f"your address has shown more than {_A_MINUTE} wrong keys a minute; try again in {seconds} s",
                ErrorKind.BUSY,
                code="rate_limit_exceeded",
                retry_after=seconds,
            )

    def right(self, address: str, digest: bytes) -> None:
        """Remember a key that was right."""
        self._known[_place(address), digest] = None

    def wrong(self, address: str) -> None:
        """Count a key that was wrong."""
        bucket = self._buckets.setdefault(_place(address), Bucket(_A_MINUTE, self._clock()))
        bucket.take(self._clock())


def _place(address: str) -> str:
    """Return what an address is counted under: itself, or its network."""
    with suppress(ValueError):
        if ipaddress.ip_address(address).version == 6:
            return str(ipaddress.ip_network((address, _NETWORK), strict=False))
    return address
