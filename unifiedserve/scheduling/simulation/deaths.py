"""Let workers of a simulated engine die, and go on as `engine/replacement.py` does."""

from collections.abc import Callable, Iterable
from functools import partial

from unifiedserve.placement import Instance, Stage
from unifiedserve.scheduling.simulation.request import Request
from unifiedserve.scheduling.simulation.system import System, Worker

_BEFORE_DECODE = (Stage.VISION, Stage.ENCODE, Stage.PREFILL)


class Deaths:
    """Let workers die at their times (seconds), and bring what was lost through again.

    Answers that a worker decoded go on in the next one from the pages that it has. Requests begin again that it had a
    part in before, and those whose answers it was about to take.
    """

    def __init__(
        self, system: System, deaths: Iterable[tuple[float, str]], install: Callable[[Instance], None]
    ) -> None:
        """Have `install` put new workers in an instance's place. Raises KeyError for an instance that there is not."""
        self._system = system
        self._install = install
        for time, name in deaths:
            system.clock.at(time, partial(self._die, system.placement.named(name)))

    def _die(self, instance: Instance) -> None:
        system, name = self._system, instance.name
        system.settle()
        system.machine.drop(name)
        dead = dict(system.workers[name])
        kept = {uid for worker in dead.values() for uid in worker.decoding}
        lost = [each for each in system.under_way() if each.ticket.uid not in kept and _loses(each, name)]
        for request in lost:
            system.lose(request)
        system.status.died(name)
        self._install(instance)
        system.inherit(name, dead)
        _Return(system, name, lost)


class _Return:
    """Bring back what was lost: the other workers forget it, its pages are freed, successors start.

    Then it begins again.
    """

    def __init__(self, system: System, name: str, lost: list[Request]) -> None:
        self._system = system
        self._lost = lost
        uids = [request.ticket.uid for request in lost]
        workers = list(system.each_worker(name))
        others = [each for each in system.each_worker() if each not in workers]
        self._deaf = len(others)
        self._starting = True
        system.clock.after(system.costs.worker_start, partial(self._start, workers))
        for worker in others:
            system.clock.after(system.costs.message, partial(system.forget, worker, uids, self._heard))
        if not others:
            self._free()

    def _start(self, workers: list[Worker]) -> None:
        self._starting = False
        self._system.started(workers)
        self._go_on()

    def _heard(self) -> None:
        self._deaf -= 1
        if not self._deaf:
            self._free()

    def _free(self) -> None:
        for request in self._lost:
            request.give_all()
        for worker in self._system.each_worker():
            self._system.wake(worker)
        self._go_on()

    def _go_on(self) -> None:
        if not (self._starting or self._deaf):
            for request in self._lost:
                self._system.begin(self._system.anew(request))


def _loses(request: Request, name: str) -> bool:
    """Tell whether a request loses something with a worker that does not decode it."""
    route = request.ticket.route
    before = any(name in route.hosts(stage) for stage in _BEFORE_DECODE)
    return (before and not request.decodes) or (route.decode == name and request.prefilled)
