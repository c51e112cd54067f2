"""What the workers of one engine tell each other without messages."""

from unifiedserve.config import Placement, Stage
from unifiedserve.memory.status import Status
from unifiedserve.scheduling import TbtControl

_HEAVY = (Stage.VISION, Stage.ENCODE, Stage.PREFILL)


class Neighbours:
    """The other workers, as far as this one paces itself by them, and what they may know of it."""

    def __init__(self, placement: Placement, instance: str, status: Status) -> None:
        self._status = status
        self._heavy = [stage for stage in _HEAVY if placement.host(stage) != instance]

    @property
    def work(self) -> bool:
        """Tell whether a heavy stage of another worker has work for the cores."""
        return any(map(self._status.working, self._heavy))

    @property
    def waiting(self) -> int:
        """Return how many requests of another worker wait for their first token."""
        return self._status.waiting(Stage.PREFILL) if Stage.PREFILL in self._heavy else 0

    @property
    def joining(self) -> bool:
        """Tell whether another worker's present step, or the next, gives first tokens to requests it has just begun."""
        return Stage.PREFILL in self._heavy and self._status.joining(Stage.PREFILL)

    @property
    def share(self) -> float:
        """Return the share of its budgets that heavy work may take beside streams."""
        return self._status.share

    def tell_share(self, control: TbtControl) -> None:
        """Tell them, and what holds the time between tokens."""
        self._status.set_share(control.share, control.tbt)

    def tell_working(self, stage: Stage, working: bool) -> None:
        """Tell them whether `stage` has work for the cores."""
        self._status.set_working(stage, working)

    def tell_waiting(self, requests: int, joining: bool) -> None:
        """Tell them how many requests wait here for their first token, and if some get it very soon."""
        self._status.set_waiting(Stage.PREFILL, requests, joining)

    def tell_used(self, stage: Stage, pages: int) -> None:
        """Record, for the peak, how many pages are in use of the buffer from which `stage` takes them."""
        self._status.used(stage, pages)
