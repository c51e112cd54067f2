"""Keep what callers leave here for a while: bounded in bytes, number and age, and each for the caller that left it."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from cachetools import LRUCache

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.server.access.caller import Caller
from unifiedserve.server.requests.parse import shortened

T = TypeVar("T")

_REMEMBERED = 4096  # ids of what has gone


class Bounds(NamedTuple):
    """Bound the things on a shelf: their number, and their bytes together.

    Each stays so many seconds after its last use (None: for ever).
    """

    number: int
    size: int
    seconds: float | None = None


class _Left(NamedTuple, Generic[T]):
    thing: T
    size: int
    caller: Caller
    used: float


class _Gone(NamedTuple):
    caller: Caller
    why: str


class Shelf(Generic[T]):
    """Keep things by id. Those that were not used for longest make room, of the caller whose things take most."""

    def __init__(
        self,
        kind: str,
        advice: str,
        bounds: Bounds,
        drop: Callable[[T], None] = lambda thing: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create one for things of this `kind`, as errors say with some `advice`; `drop` is told of each that goes."""
        self._kind = kind
        self._advice = advice
        self._bounds = bounds
        self._drop = drop
        self._clock = clock
        self._left: dict[str, _Left[T]] = {}  # in the order of their last use
        self._held: Counter[Caller] = Counter()  # bytes
        self._gone: LRUCache[str, _Gone] = LRUCache(_REMEMBERED)

    def __contains__(self, id: str) -> bool:
        return id in self._left

    def put(self, id: str, thing: T, size: int, caller: Caller) -> None:
        """Take a thing, as the last one used. It may be there with another size. It must fit."""
        if id in self._left:
            self._take(id)
        self._drop_old()
        while self._left and not self._has_room(size):
            self._make_room()
        self._left[id] = _Left(thing, size, caller, self._clock())
        self._held[caller] += size

    def get(self, id: str, caller: Caller) -> T:
        """Return a thing, which is the last one used; raise RequestError 404 if there is none for this caller."""
        left = self._find(id, caller)
        self._left[id] = self._left.pop(id)._replace(used=self._clock())
        return left.thing

    def remove(self, id: str, caller: Caller) -> None:
        """Forget a thing; raise RequestError 404 if there is none for this caller."""
        self._find(id, caller)
        self._forget(id, "was deleted")

    def discard(self, id: str) -> None:
        """Forget a thing if it is there, as if it had never been."""
        if id in self._left:
            self._drop(self._take(id).thing)

    def clear(self) -> None:
        """Forget all things."""
        for id in list(self._left):
            self.discard(id)

    def missing(self, id: str, caller: Caller) -> RequestError:
        """Return the error of an id under which there is nothing for a caller."""
        reason = f"There is no {self._kind} `{shortened(id)}`"
        if (gone := self._gone.get(id)) is not None and _shares(gone.caller, caller):
            reason = f"The {self._kind} `{id}` {gone.why}"
        return RequestError(f"{reason}: {self._advice}.", ErrorKind.NOT_FOUND, code=f"{self._kind}_not_found")

    def _find(self, id: str, caller: Caller) -> _Left[T]:
        self._drop_old()
        left = self._left.get(id)
        if left is None or not _shares(left.caller, caller):
            raise self.missing(id, caller)
        return left

    def _has_room(self, size: int) -> bool:
        return len(self._left) < self._bounds.number and self._held.total() + size <= self._bounds.size

    def _drop_old(self) -> None:
        if (seconds := self._bounds.seconds) is None:
            return
        while self._left:
            id, first = next(iter(self._left.items()))
            if first.used + seconds > self._clock():
                return
            self._forget(id, f"was dropped, because nobody used it for {seconds:g} s")

    def _make_room(self) -> None:
        most = max(self._held.values(), default=0)
        id = next(id for id, left in self._left.items() if self._held[left.caller] == most)
        self._forget(id, "was dropped, because it had to make room for others")

    def _forget(self, id: str, why: str) -> None:
        left = self._take(id)
        self._gone[id] = _Gone(left.caller, why)
        self._drop(left.thing)

    def _take(self, id: str) -> _Left[T]:
        """Take away a thing that is there."""
        left = self._left.pop(id)
        self._held[left.caller] -= left.size
        if not self._held[left.caller]:
            del self._held[left.caller]
        return left


def _shares(owner: Caller, caller: Caller) -> bool:
    """Tell whether a caller may have what the owner left: without keys, everybody may."""
    return not owner.keyed or owner == caller
