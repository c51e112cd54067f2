"""Simulate one engine: discrete events over the very functions that plan its workers' steps.

Pure: no torch, no clock, no I/O. The costs of work are data (`StageCosts`), and so is the hardware (`Sharing`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from unifiedserve.messages.load import EngineLoad
from unifiedserve.placement import Instance, Placement, Stage
from unifiedserve.scheduling.profile import Profile, profiled
from unifiedserve.scheduling.simulation.arrival import Arrival, FreePages, Rules
from unifiedserve.scheduling.simulation.deaths import Deaths
from unifiedserve.scheduling.simulation.language import LanguageWorker
from unifiedserve.scheduling.simulation.machine import Machine, Sharing
from unifiedserve.scheduling.simulation.request import Request
from unifiedserve.scheduling.simulation.roles import Changed, RoleWatch
from unifiedserve.scheduling.simulation.system import System, Worker
from unifiedserve.scheduling.simulation.vision import VisionWorker
from unifiedserve.scheduling.stage_costs import StageCosts
from unifiedserve.scheduling.state import Budget
from unifiedserve.scheduling.step_costs import StepCosts
from unifiedserve.scheduling.targets import Targets

_FRONTEND = Instance("frontend", ())


class Simulator:
    """Hold the requests of one engine, its buffers, and its workers. Without `targets` their tickets stay as they are.

    With `dual_streams` cores are shared out as by `--dual-streams on`.
    """

    def __init__(
        self,
        placement: Placement,
        budget: Budget,
        free: FreePages,
        arrivals: Iterable[Arrival],
        costs: StageCosts,
        sharing: Sharing,
        rules: Rules = Rules(),  # noqa: B008
        targets: Targets | None = None,
        dual_streams: bool = False,
        *,
        budgets: Mapping[str, Budget] | None = None,
        profiles: bool = False,
        roles: bool = False,
        deaths: Iterable[tuple[float, str]] = (),
    ) -> None:
        """Begin with no request, and with these `free` pages in each memory.

        `budgets`: those of single instances, in place of `budget`. `profiles`: each instance tries out its budgets, as
        workers do with such options. `roles`: workers change what they host, as with `--roles auto`. `deaths`: when
        (seconds) the workers of which instances die. Raises ValueError for deaths where roles change.
        """
        self._budget = budget
        self._budgets = budgets or {}
        self._profiles = profiles
        self._machine = Machine(sharing)
        page_tokens = budget.kv_page_tokens
        self.system = System(placement, self._machine, costs, free, rules, page_tokens, targets, dual_streams)
        self._clock = self.system.clock
        for instance in placement.instances:
            self.system.workers[instance.name] = self._workers(instance)
        self._requests: dict[int, Request] = {}  # by uid
        self._roles = RoleWatch(self.system, self._install) if roles else None
        for arrival in arrivals:
            self.submit(arrival)
        if roles and (deaths := list(deaths)):
            raise ValueError("workers either die or change what they host")
        Deaths(self.system, deaths, self._install)

    def submit(self, arrival: Arrival) -> None:
        """Let a request come at the time that its ticket says, which is not over."""
        request = self._requests[arrival.ticket.uid] = Request(arrival, arrival.ticket)
        self.system.requests[arrival.ticket.uid] = request
        self._clock.at(arrival.ticket.arrival, partial(self._take_in, request))

    @property
    def load(self) -> EngineLoad:
        """Return how busy the engine is, as it would tell a router."""
        return self.system.load()

    @property
    def frees(self) -> dict[str, FreePages]:
        """Return the free pages of each memory."""
        return self.system.frees

    @property
    def now(self) -> float:
        """Return the simulated time (seconds)."""
        return self._clock.now

    @property
    def tokens(self) -> dict[int, list[float]]:
        """Return when (seconds) the tokens of each request came, by its uid."""
        return {uid: request.tokens for uid, request in self._requests.items()}

    @property
    def changed(self) -> list[Changed]:
        """Return which instances have changed what they host, in order."""
        return self._roles.changed if self._roles else []

    @property
    def unfinished(self) -> list[int]:
        """Return the uids of the requests that lack tokens."""
        return [uid for uid, request in self._requests.items() if request.left]

    def run(self, until: float = float("inf")) -> None:
        """Let everything happen up to a time (seconds), or until nothing happens any more."""
        self.system.known_until = until
        while True:
            left = self._machine.left
            time = min(self._clock.next, self._clock.now + left)
            if time > until or time == float("inf"):
                self.system.settle()
                return
            self._advance(time, left)
            self._clock.happen()
            self.system.take_turns()
            if self._roles:
                self._roles.advance()

    def _advance(self, time: float, left: float) -> None:
        """Let time pass up to the next event; of two at one time the end of a task goes first."""
        ends = time >= self._clock.now + left
        self._machine.advance(left if ends else time - self._clock.now)
        self._clock.now = time
        if ends:
            self._machine.end_next().ended()

    def _install(self, instance: Instance) -> None:
        self.system.install(instance.name, self._workers(instance))

    def _workers(self, instance: Instance) -> dict[Stage, Worker]:
        """Return the workers of each stage of an instance. Its decoders of media have threads of their own.

        The target between tokens is that of the instance that decodes.
        """
        workers, budget = dict[Stage, Worker](), self._budgets.get(instance.name, self._budget)
        if language := [stage for stage in instance.stages if stage is not Stage.VISION]:
            own = budget if Stage.DECODE in language else replace(budget, slo_tbt=0.0)
            own, steps = self._profiled(instance, own) if self._profiles else Profile(own, StepCosts())
            workers |= dict.fromkeys(language, LanguageWorker(instance, own, steps, self.system))
        if Stage.VISION in instance.stages:
            sharing = self._machine.sharing
            engines = sharing.decoders(instance.threads(sharing.threads(giving=False)))
            workers[Stage.VISION] = VisionWorker(instance, engines, self.system, budget.order)
        return workers

    def _profiled(self, instance: Instance, budget: Budget) -> Profile:
        """Return the budget of an instance whose steps it tries out. It has its cores to itself."""
        costs = self.system.costs
        slower = self.system.slower(instance, self._machine.sharing.threads(giving=False))
        lone_step = slower * costs.lone_step if Stage.DECODE in instance.stages else 0.0
        return profiled(budget, costs.steps(slower), lone_step)

    def _take_in(self, request: Request) -> None:
        """Let the HTTP server read a request and look at its media."""
        costs = self.system.costs
        seconds = costs.intake + request.arrival.media * costs.medium
        self.system.run_on_host(_FRONTEND, None, seconds, partial(self.system.begin, request))
