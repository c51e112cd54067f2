"""The table of the requests in flight, and of the attempts at them."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from unifiedserve.engine.requests.queue_time import QueueTime
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.placement import Load, Route, Stage


class Attempt(NamedTuple):
    """A request on its way through the stages, and its load as it began."""

    request: ActiveRequest
    load: Load


class RequestTable:
    """All requests in flight. Belongs to the engine's event loop."""

    def __init__(self, places: int, on_release: Callable[[], None]) -> None:
        """So many decode at once; `on_release` is called when a request has ended."""
        self._places = places
        self.queue = QueueTime()
        self._on_release = on_release
        self._uids = itertools.count(1)
        self._requests: set[ActiveRequest] = set()
        self._attempts: dict[int, Attempt] = {}  # by uid

    def __len__(self) -> int:
        """Count the requests, aborted ones that are still being drained included."""
        return len(self._requests)

    def __iter__(self) -> Iterator[ActiveRequest]:
        return iter(list(self._requests))

    def add(self, active: ActiveRequest) -> None:
        """Keep a request until it is released."""
        self._requests.add(active)

    def release(self, active: ActiveRequest) -> None:
        """Forget a request that is in no stage any more."""
        active.close()
        self._requests.discard(active)
        self.queue.ended(self.waiting)
        for uid in active.attempts:
            self._attempts.pop(uid, None)
        self._on_release()

    @property
    def waiting(self) -> int:
        """How many requests wait for their first token, or for a place among those that decode."""
        first = sum(not (active.begun or active.ending) for active in self._requests)
        return max(first, len(self._requests) - self._places)

    @property
    def backlog(self) -> float:
        """The seconds that it takes to encode and prefill those that wait for their first token, as estimated."""
        return sum(active.work for active in self._requests if not (active.begun or active.ending))

    def new_uid(self) -> int:
        """Return the uid of a further attempt."""
        return next(self._uids)

    def begin(self, uid: int, active: ActiveRequest, indices: Iterable[int], load: Load) -> None:
        """Note an attempt at these answers, who serves it, and how many tokens that takes until they begin."""
        active.attempts[uid] = set(indices)
        self._attempts[uid] = Attempt(active, load)

    def route(self, uid: int) -> Route | None:
        """Return who serves an attempt; None if it is over."""
        attempt = self._attempts.get(uid)
        return attempt.load.route if attempt else None

    def serves(self, instance: str) -> bool:
        """Return whether an instance serves an attempt in any stage."""
        routes = (attempt.load.route for attempt in self._attempts.values())
        return any(instance in route.hosts(stage) for route in routes for stage in Stage)

    def loads(self) -> Iterator[Load]:
        """Yield what is left of each attempt."""
        for uid, (active, load) in self._attempts.items():
            left = {} if active.begun else load.left
            yield Load(load.route, {**left, Stage.DECODE: len(active.attempts[uid])})

    def find(self, uid: int) -> ActiveRequest | None:
        """Return the request of an attempt; None if the attempt is over."""
        attempt = self._attempts.get(uid)
        return attempt.request if attempt else None

    def serving(self, uid: int) -> ActiveRequest | None:
        """Return the request of an attempt; None if the attempt is over or the request is only to be drained."""
        active = self.find(uid)
        return None if active is None or active.ending else active

    def leave(self, uid: int, index: int) -> None:
        """Take an answer out of an attempt, which is over with its last one."""
        active = self.find(uid)
        if active is None:
            return
        active.attempts[uid].discard(index)
        if not active.attempts[uid]:
            self.end_attempt(uid)

    def empty(self, uid: int) -> list[int]:
        """Take all answers out of an attempt that is to be drained, and return them."""
        active = self._attempts[uid].request
        indices, active.attempts[uid] = active.attempts[uid], set()
        return sorted(indices)

    def end_attempt(self, uid: int) -> ActiveRequest | None:
        """Forget an attempt that has left every stage; returns its request."""
        attempt = self._attempts.pop(uid, None)
        if attempt is None:
            return None
        attempt.request.attempts.pop(uid, None)
        return attempt.request

    def of_attempts(self, uids: Iterable[int]) -> set[ActiveRequest]:
        """Return the requests of those attempts that are not over."""
        return {active for uid in uids if (active := self.find(uid))}

    def lose_attempts(self) -> list[ActiveRequest]:
        """Forget all attempts, for their workers died, and return the requests that were in one."""
        lost = [active for active in self._requests if active.attempts]
        for active in lost:
            active.attempts.clear()
        self._attempts.clear()
        return lost
