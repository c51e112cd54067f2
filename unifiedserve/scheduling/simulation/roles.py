"""Change what workers of a simulated engine host, as with `--roles auto`."""

from collections.abc import Callable
from functools import partial, reduce
from typing import NamedTuple

from unifiedserve.messages.costs import Costs
from unifiedserve.placement import Instance, RoleChange
from unifiedserve.scheduling.roles import LOOK_SECONDS, RoleBalance, work_left
from unifiedserve.scheduling.simulation.system import System


class Changed(NamedTuple):
    """Record an instance as it has become, and when (seconds): it began to drain, and it took requests again."""

    instance: Instance
    began: float
    ended: float


class RoleWatch:
    """Look at the work each second, and carry out the decision: drain a worker, and start its successor."""

    def __init__(self, system: System, install: Callable[[Instance], None]) -> None:
        """Have `install` put new workers in an instance's place."""
        self.changed: list[Changed] = []
        self._system = system
        self._install = install
        self._balance = RoleBalance(system.roles.placement)
        self._costs = Costs()
        self._draining: RoleChange | None = None
        system.clock.at(0.0, self._look)

    def advance(self) -> None:
        """Start the successor of a worker that drains, once no request needs that."""
        if (change := self._draining) and not self._system.serves(change.after.name):
            self._draining = None
            self._system.roles.drained(change)
            self._install(change.after)
            self._system.clock.after(self._system.costs.worker_start, partial(self._end, change))

    def _look(self) -> None:
        system = self._system
        system.settle()
        if (placement := system.roles.settled) is not None:
            self._costs = reduce(Costs.learned, (worker.costs for worker in system.each_worker()), self._costs)
            under_way = list(system.under_way())
            streams = [len(request.tokens) for request in under_way if request.tokens]
            work = work_left((request.load.left for request in under_way), streams, self._costs)
            if wanted := self._balance.take(system.clock.now, placement, work):
                self._begin(placement.named(wanted.name), wanted)
        if not system.is_over:
            system.clock.after(LOOK_SECONDS, self._look)

    def _begin(self, before: Instance, after: Instance) -> None:
        roles = self._system.roles
        self._draining = change = roles.start(before, after, self._system.clock.now)
        if heirs := roles.heirs(change):
            self._system.hand_over(before.name, heirs)

    def _end(self, change: RoleChange) -> None:
        self._system.roles.end(change)
        self.changed.append(Changed(change.after, change.began, self._system.clock.now))
