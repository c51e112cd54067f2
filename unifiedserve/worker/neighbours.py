"""What the workers of one engine tell each other without messages."""

from unifiedserve.config import Placement, Stage
from unifiedserve.memory.status import Status
from unifiedserve.scheduling.turn import Around, Tells

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

    def around(self) -> Around:
        """Return what the others tell."""
        status, elsewhere = self._status, Stage.PREFILL in self._heavy
        return Around(
            self.work,
            status.waiting(Stage.PREFILL) if elsewhere else 0,
            elsewhere and status.joining(Stage.PREFILL),
            status.share,
        )

    def tell(self, tells: Tells) -> None:
        """Tell them what this one is about to do."""
        for stage, working in tells.working.items():
            self.tell_working(stage, working)
        if tells.waiting is not None:
            self._status.set_waiting(Stage.PREFILL, tells.waiting, tells.joining)
        if tells.share is not None:
            self._status.set_share(tells.share, tells.tbt)

    def tell_working(self, stage: Stage, working: bool) -> None:
        """Tell them whether `stage` has work for the cores."""
        self._status.set_working(stage, working)

    def tell_used(self, stage: Stage, pages: int) -> None:
        """Record, for the peak, how many pages are in use of the buffer from which `stage` takes them."""
        self._status.used(stage, pages)
