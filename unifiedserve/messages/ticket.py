"""Give a request its place in every queue: what schedulers may know of the order."""

import msgspec

from unifiedserve.placement import Route

Place = tuple[int, float]  # priority, and turn (monotonic seconds) among those of it: comparable between instances


class Ticket(msgspec.Struct, frozen=True):
    """Identify a request, with the start of its wait (monotonic seconds) and its urgency.

    The lowest `priority` goes first. Its first token is owed by `due` (monotonic seconds); `work` are the seconds that
    it takes alone, as estimated. The instances of its `route` serve it.
    """

    uid: int
    arrival: float
    priority: int = 0
    due: float = float("inf")
    work: float = 0.0
    route: Route = Route()

    @property
    def turn(self) -> tuple[int, float, int]:
        """Return a key that sorts requests: by priority, then first come, first served."""
        return self.priority, self.arrival, self.uid
