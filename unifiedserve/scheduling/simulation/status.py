"""What the workers of a simulated engine tell each other without messages."""

from dataclasses import dataclass, field

from unifiedserve.config import Instance, Stage
from unifiedserve.scheduling.turn import Around, Tells

_HEAVY = (Stage.VISION, Stage.ENCODE, Stage.PREFILL)


@dataclass(slots=True)
class Status:
    """What each stage's worker has told last."""

    working: dict[Stage, bool] = field(default_factory=lambda: dict.fromkeys(Stage, False))
    waiting: int = 0  # requests in the worker that prefills
    joining: bool = False
    share: float = 1.0  # of their budgets, of heavy stages beside streams

    def tell(self, tells: Tells) -> None:
        """Take what a worker tells."""
        self.working |= tells.working
        if tells.waiting is not None:
            self.waiting, self.joining = tells.waiting, tells.joining
        if tells.share is not None:
            self.share = tells.share

    def work_beside(self, instance: Instance) -> bool:
        """Tell whether a heavy stage of another instance has work for the cores."""
        return any(self.working[stage] for stage in _HEAVY if stage not in instance.stages)

    def around(self, instance: Instance) -> Around:
        """Return what an instance sees of the others."""
        elsewhere = Stage.PREFILL not in instance.stages
        return Around(
            self.work_beside(instance), self.waiting if elsewhere else 0, elsewhere and self.joining, self.share
        )
