"""What the workers of a simulated engine tell each other without messages (as `worker/neighbours.py`)."""

from collections.abc import Collection

from unifiedserve.config import Stage
from unifiedserve.scheduling.pacing import joins_soon
from unifiedserve.scheduling.simulation.prompts import Prompts
from unifiedserve.scheduling.simulation.system import System
from unifiedserve.scheduling.state import Budget, Pace, Plan

_HEAVY = (Stage.VISION, Stage.ENCODE, Stage.PREFILL)


class Neighbours:
    """The other workers, as far as one paces itself by them, and what they may know of it."""

    def __init__(self, system: System, hosted: Collection[Stage], budget: Budget) -> None:
        self._system = system
        self._hosted = hosted
        self._budget = budget
        self._heavy = [stage for stage in _HEAVY if stage not in hosted]

    @property
    def work(self) -> bool:
        """Tell whether a heavy stage of another worker has work for the cores."""
        return any(self._system.status.working[stage] for stage in self._heavy)

    def pace(self, own: Pace) -> Pace:
        """Return the pace of a worker's own steps with what goes on elsewhere."""
        status, elsewhere = self._system.status, Stage.PREFILL in self._heavy
        return Pace(
            own.started,
            own.ended,
            others_work=self._system.machine.sharing.rests and self.work,
            waiting=status.waiting if elsewhere else 0,
            joining=status.joining and elsewhere,
        )

    def tell(self, plan: Plan, prompts: Prompts) -> None:
        """Let the other workers know what this one is about to do."""
        status = self._system.status
        if Stage.ENCODE in self._hosted:
            status.working[Stage.ENCODE] = bool(plan.encode)
        if Stage.PREFILL in self._hosted:
            status.working[Stage.PREFILL] = bool(plan.prefill)
            status.waiting = len(prompts)
            status.joining = joins_soon(plan, lambda uid: prompts[uid].state, self._budget)
