"""A request's place in every queue: what all schedulers may know of who goes first."""

import msgspec

from unifiedserve.placement import Route

Place = tuple[int, float]  # priority, and turn (monotonic seconds) among those of it: comparable between instances


class Ticket(msgspec.Struct, frozen=True):
    """Who a request is, since when it waits (monotonic seconds), and how urgent it is: the lowest `priority` first.

    Its first token is owed by `due` (monotonic seconds); `work` are the seconds that it takes alone, as estimated. The
    instances of its `route` serve it.
    """

    uid: int
    arrival: float
    priority: int = 0
    due: float = float("inf")
    work: float = 0.0
    route: Route = Route()

    @property
    def turn(self) -> tuple[int, float, int]:
        """Sorts requests: by priority, then first come, first served."""
        return self.priority, self.arrival, self.uid
