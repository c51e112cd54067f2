"""Order the requests of a stage."""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from unifiedserve.config import Order
from unifiedserve.messages.ticket import Ticket
from unifiedserve.scheduling.state import Rank

_PATIENCE = 2.0  # targets after its arrival at which a request that has missed its own is due
_AGEING = 8.0  # times its remaining work that a request lets newcomers go first which are shorter


class Queued(Protocol):
    """Hold a request that waits for a stage, or is in it.

    `rank` is its place, the lowest first. It holds until `rank_ends` (monotonic seconds; -inf: it is to be found
    again).
    """

    ticket: Ticket
    rank: Rank
    rank_ends: float

    @property
    def left(self) -> float:
        """Return the share of its work that is still to be done, in (0, 1]."""

    @property
    def begun(self) -> bool:
        """Tell whether it holds pages for which others would have to wait."""


T = TypeVar("T", bound=Queued)


class Queue(Generic[T]):
    """Keep the requests of a stage in the order of service.

    Priority classes go first in every order, in fcfs behind what has begun. Within one nobody waits for ever: only
    those can overtake a request that arrive before a moment that is fixed by its own target or its own work.
    """

    def __init__(self, order: Order) -> None:
        self._find_rank = _RANKS[order]
        self._requests: list[T] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[T]:
        return iter(self._requests)

    def add(self, request: T) -> None:
        """Let a request join the queue."""
        request.rank_ends = float("-inf")
        self._requests.append(request)

    def remove(self, request: T) -> None:
        """Let a request leave. Raises ValueError if it is not here."""
        index = next((i for i, other in enumerate(self._requests) if other is request), None)
        if index is None:
            raise ValueError(f"request {request.ticket.uid} is not in the queue")
        del self._requests[index]

    def in_turn(self, now: float) -> list[T]:
        """Return the requests in the order of service at this time (monotonic seconds). The list is the queue's own."""
        moved = [request for request in self._requests if request.rank_ends <= now]
        for request in moved:
            request.rank, request.rank_ends = self._find_rank(request, now)
        if moved:
            self._requests.sort(key=attrgetter("rank"))
        return self._requests


def _first_come(request: Queued, now: float) -> tuple[Rank, float]:
    """Rank by arrival, those that have begun before those that have not: two in turns would both be late."""
    ticket = request.ticket
    return (not request.begun, ticket.priority, ticket.arrival, ticket.uid), float("inf")


def _least_slack(request: Queued, now: float) -> tuple[Rank, float]:
    """Rank by the latest moment to begin at which a request alone meets its target. ModServe §4.3, EPD §3.3.3.

    Its work done counts in its favour, so that similar requests do not take turns: all would be late. One that cannot
    meet its target any more goes behind those that can, as if it had a target several times as long.
    """
    ticket = request.ticket
    done, last = ticket.work * (1 - request.left), ticket.due - ticket.work * request.left
    if now < last:
        return (False, ticket.priority, ticket.due - ticket.work - done, ticket.uid), last
    patient = ticket.arrival + _PATIENCE * (ticket.due - ticket.arrival)
    return (False, ticket.priority, patient - done, ticket.uid), float("inf")


def _shortest(request: Queued, now: float) -> tuple[Rank, float]:
    """Rank by the least remaining work, and by age: a request is overtaken for a multiple of its work only."""
    ticket = request.ticket
    aged = ticket.arrival + _AGEING * ticket.work * request.left
    return (False, ticket.priority, aged, ticket.uid), float("inf")


_RANKS: dict[Order, Callable[[Queued, float], tuple[Rank, float]]] = {
    "fcfs": _first_come,
    "slack": _least_slack,
    "shortest": _shortest,
}
