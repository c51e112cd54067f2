"""Keep the requests in flight, and the attempts at them."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from unifiedserve.engine.requests.queue_time import QueueTime
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.tally import Tally
from unifiedserve.placement import Load, Route, Stage


class Remote(Protocol):
    """Follow what other nodes encode of an attempt: see `engine/encoding/`."""

    @property
    def is_under_way(self) -> bool: ...
    def read(self, unit: int) -> None: ...
    def lost(self, reason: str) -> None: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class Attempt:
    """Track a request through the stages: its hosts, and the tokens left at first.

    Once an answer has more than its first token, nothing of it is left in the stages before decode.
    """

    uid: int
    request: ActiveRequest
    route: Route
    left: Mapping[Stage, int]
    tokens: Counter[int] = field(default_factory=Counter)  # that each answer has got
    handed: dict[int, str] = field(default_factory=dict)  # the instance that each answer was handed to
    decoded_before: str = ""  # the instance before, if another one decodes it now
    step_failed: bool = False  # it may have left references of shared pages
    remote: Remote | None = None  # what other nodes encode of it

    @property
    def new_tokens(self) -> int:
        """Return how many tokens have come of the longest answer. The first is from prefill, the others from decode."""
        return max(self.tokens.values(), default=0)

    @property
    def giver(self) -> str:
        """Return the instance that has handed it over to its present decoder."""
        return self.decoded_before or self.route.prefill

    def needs(self, instance: str) -> bool:
        """Tell whether an instance may have a part in the rest of the work.

        An instance that an abort passes has one, too.
        """
        answers = self.request.attempts[self.uid]
        decodes = all(self.tokens[index] > 1 for index in answers)
        stages = [Stage.DECODE] if decodes and answers and not self.request.ending else list(Stage)
        return any(instance in self.route.hosts(stage) for stage in stages)

    def follow(self) -> None:
        """Take the instance that all its answers were handed to. An abort goes the way that it began."""
        answers = self.request.attempts[self.uid]
        hosts = {self.handed.get(index, "") for index in answers}
        if len(hosts) == 1 and not self.request.ending:
            host = hosts.pop() or self.route.decode
            if host != self.route.decode and self.new_tokens:
                self.decoded_before = self.route.decode
            self.route = self.route.decoded_by(host)


class Lost(NamedTuple):
    """Name an attempt that ended with a worker, and its answers that are not complete."""

    uid: int
    request: ActiveRequest
    indices: list[int]


class RequestTable:
    """Hold all requests in flight. Belongs to the engine's event loop."""

    def __init__(self, places: int, on_release: Callable[[], None]) -> None:
        """Let so many decode at once. `on_release` is called when a request has ended."""
        self._places = places
        self.queue = QueueTime()
        self.tally = Tally()
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
            self._forget(uid)
        self._on_release()

    @property
    def waiting(self) -> int:
        """Return how many requests wait for their first token or a place in decode."""
        first = sum(not (active.begun or active.ending) for active in self._requests)
        return max(first, len(self._requests) - self._places)

    @property
    def waits_for_nodes(self) -> bool:
        """Tell whether any request waits for another node: to encode, or to read what was encoded."""
        return any(
            (attempt.remote and attempt.remote.is_under_way) or (attempt.request.is_lent and attempt.request.complete)
            for attempt in self._attempts.values()
        )

    @property
    def backlog(self) -> float:
        """Return the estimated seconds to encode and prefill requests that wait for first tokens."""
        return sum(active.work for active in self._requests if not (active.begun or active.ending))

    def left(self) -> Counter[Stage]:
        """Return the tokens left in each stage before decode, and the answers in that."""
        left = Counter[Stage]()
        for load in self.loads():
            left.update(load.left)
        return left

    def new_uid(self) -> int:
        """Return the uid of a further attempt."""
        return next(self._uids)

    def begin(self, uid: int, active: ActiveRequest, indices: Iterable[int], load: Load) -> None:
        """Note an attempt at these answers, its hosts, and the tokens until they begin."""
        active.attempts[uid] = set(indices)
        self._attempts[uid] = Attempt(uid, active, *load)

    def route(self, uid: int) -> Route | None:
        """Return the route of an attempt; None if it is over."""
        attempt = self._attempts.get(uid)
        return attempt.route if attempt else None

    def serves(self, instance: str) -> bool:
        """Return whether an instance has a part in any attempt."""
        return any(attempt.needs(instance) for attempt in self._attempts.values())

    def without(self, instance: str) -> None:
        """Note that an instance, which serves nobody, leaves: no abort is to go by it."""
        for attempt in self._attempts.values():
            attempt.route = attempt.route.without(instance)

    def loads(self) -> Iterator[Load]:
        """Yield what is left of each attempt."""
        for uid, attempt in self._attempts.items():
            left = {} if attempt.request.begun else attempt.left
            yield Load(attempt.route, {**left, Stage.DECODE: len(attempt.request.attempts[uid])})

    def came(self, uid: int, index: int) -> None:
        """Note a token of an answer."""
        if attempt := self._attempts.get(uid):
            attempt.tokens[index] += 1

    def note_failed_step(self, uid: int) -> bool:
        """Note that a step failed in which an attempt was; return False if it is over."""
        if attempt := self._attempts.get(uid):
            attempt.step_failed = True
        return attempt is not None

    def had_failed_step(self, uid: int) -> bool:
        """Tell whether a step failed in which an attempt was that is not over."""
        return uid in self._attempts and self._attempts[uid].step_failed

    def hand_over(self, uid: int, index: int, host: str) -> None:
        """Note that another instance goes on with an answer."""
        if attempt := self._attempts.get(uid):
            attempt.handed[index] = host
            attempt.follow()

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
        self._attempts[uid].follow()
        if not active.attempts[uid]:
            self.end_attempt(uid)

    def empty(self, uid: int) -> list[int]:
        """Take all answers out of an attempt that is to be drained, and return them."""
        active = self._attempts[uid].request
        indices, active.attempts[uid] = active.attempts[uid], set()
        return sorted(indices)

    def end_attempt(self, uid: int) -> ActiveRequest | None:
        """Forget an attempt that has left every stage; returns its request."""
        attempt = self._forget(uid)
        if attempt is None:
            return None
        attempt.request.attempts.pop(uid, None)
        return attempt.request

    def encoded(self, uid: int, tokens: int) -> None:
        """Note that so many of an attempt's visual tokens are encoded."""
        if attempt := self._attempts.get(uid):
            attempt.left = {stage: max(0, left - tokens) for stage, left in attempt.left.items()}

    def encode_elsewhere(self, uid: int, remote: Remote) -> None:
        """Note what other nodes encode of an attempt, which ends with it."""
        if attempt := self._attempts.get(uid):
            attempt.remote = remote

    def remote(self, uid: int) -> Remote | None:
        """Return what other nodes encode of an attempt; None if it is over."""
        attempt = self._attempts.get(uid)
        return attempt.remote if attempt else None

    def of_attempts(self, uids: Iterable[int]) -> set[ActiveRequest]:
        """Return the requests of those attempts that are not over."""
        return {active for uid in uids if (active := self.find(uid))}

    def attempts(self) -> list[tuple[int, Attempt]]:
        """Return all attempts, by uid."""
        return list(self._attempts.items())

    def lose(self, uids: Iterable[int]) -> list[Lost]:
        """Forget attempts whose worker has died.

        Requests go, too, of which nothing but these was left to be drained.
        """
        lost = [Lost(uid, self._attempts[uid].request, self.empty(uid)) for uid in uids]
        for uid, active, indices in lost:
            self.end_attempt(uid)
            for index in indices:
                active.answers[index].forget_early()
            if active.ending and not active.attempts:
                self.release(active)
        return lost

    def _forget(self, uid: int) -> Attempt | None:
        attempt = self._attempts.pop(uid, None)
        if attempt and attempt.remote:
            attempt.remote.close()
        return attempt
