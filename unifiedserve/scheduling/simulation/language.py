"""A language worker in numbers: its policy, its prompts and its sequences (as `worker/language/lane.py`)."""

from functools import partial

from unifiedserve.config import Instance, Stage
from unifiedserve.scheduling.policies import policy_for
from unifiedserve.scheduling.simulation.measured import Measured
from unifiedserve.scheduling.simulation.messages import Begin, Encoded, Message, Patches, Prefilled
from unifiedserve.scheduling.simulation.prompts import Prompts
from unifiedserve.scheduling.simulation.sequences import Sequences
from unifiedserve.scheduling.simulation.steps import EncodeStep, ForwardStep, Work
from unifiedserve.scheduling.simulation.system import System
from unifiedserve.scheduling.state import Budget, Pace, Plan, State

_HEAVY = (Stage.VISION, Stage.ENCODE, Stage.PREFILL)


class LanguageWorker:
    """One step is: a pass over prompt chunks and sequences, then a batch of the encoder."""

    def __init__(self, instance: Instance, budget: Budget, system: System) -> None:
        hosted = frozenset(instance.stages)
        self._instance = instance
        self._hosted = hosted
        self._neighbours = [stage for stage in _HEAVY if stage not in hosted]
        self._policy = policy_for(hosted)
        self._budget = budget
        self._system = system
        self._prompts = Prompts(system, budget.order, prefills=Stage.PREFILL in hosted)
        self._sequences = Sequences(system)
        self._measured = Measured()
        self._forward = ForwardStep(system, self._prompts, self._sequences, self._measured, self._send)
        self._encode = EncodeStep(system, self._prompts, self._measured, self._send)
        self._inbox: list[Message] = []
        self._busy = False
        self._wake = float("inf")

    def receive(self, message: Message) -> None:
        self._inbox.append(message)

    def accept(self, message: Message) -> None:
        match message:
            case Begin(request):
                self._prompts.begin(request)
            case Patches(uid, unit):
                self._prompts.ready(uid, unit)
            case Encoded(uid, unit):
                self._prompts.take_encoded(uid, unit)
            case Prefilled(request, state):
                self._sequences.begin(request, state)

    def turn(self) -> None:
        if self._busy:
            return
        inbox, self._inbox = self._inbox, []
        for message in inbox:
            self.accept(message)
        plan = self._policy(self._state(), self._budget)
        self._check(plan)
        self._tell(plan)
        if plan.preempt:
            self._preempt(plan.preempt)
        if plan.has_work:
            self._run(plan)
        else:
            self._sleep(plan.wait_until)

    def _send(self, stage: Stage, message: Message) -> None:
        self._system.send(stage, message, self)

    def _run(self, plan: Plan) -> None:
        """Do what is planned; then the next turn comes at once."""
        self._wake = float("inf")
        if plan.prefill or plan.decode:
            self._compute(
                self._forward.begin(plan, others_work=self._others_work), plan._replace(prefill=[], decode=[])
            )
        elif plan.encode:
            self._compute(self._encode.begin(plan.encode), Plan())
        else:
            self._system.wake(self)

    def _compute(self, work: Work, rest: Plan) -> None:
        self._busy = True
        threads = self._system.machine.sharing.threads(work.giving)
        self._system.run(self._instance, threads, work.seconds, partial(self._computed, work, rest))

    def _computed(self, work: Work, rest: Plan) -> None:
        work.end()
        self._busy = False
        self._run(rest)

    def _sleep(self, until: float) -> None:
        """Wait for a message, or for a time (seconds)."""
        assert until > self._system.clock.now, "a worker must not spin"
        self._wake = until
        if until < float("inf"):
            self._system.clock.at(until, partial(self._awake, until))

    def _awake(self, time: float) -> None:
        if self._wake == time:
            self._system.wake(self)

    def _state(self) -> State:
        """Return what the policy sees: what is here, and what other workers tell."""
        system, elsewhere = self._system, Stage.PREFILL not in self._hosted
        pace = Pace(
            self._measured.pace.started,
            self._measured.pace.ended,
            others_work=system.machine.sharing.rests and self._others_work,
            waiting=system.status.waiting if elsewhere else 0,
            joining=system.status.joining and elsewhere,
        )
        return State(
            prefills=self._prompts.in_turn(),
            decodes=self._sequences.states,
            kv_free=system.free.kv,
            kv_total=system.kv_total,
            visual_free=system.free.visual - self._prompts.promised,
            now=system.clock.now,
            pace=pace,
            costs=self._measured.costs,
        )

    @property
    def _others_work(self) -> bool:
        return any(self._system.status.working[stage] for stage in self._neighbours)

    def _check(self, plan: Plan) -> None:
        for planned, stage in ((plan.encode, Stage.ENCODE), (plan.prefill, Stage.PREFILL), (plan.decode, Stage.DECODE)):
            assert not planned or stage in self._hosted, f"{stage} is planned where it is not hosted"

    def _tell(self, plan: Plan) -> None:
        """Let the other workers know what this one is about to do."""
        status = self._system.status
        if Stage.ENCODE in self._hosted:
            status.working[Stage.ENCODE] = bool(plan.encode)
        if Stage.PREFILL in self._hosted:
            status.working[Stage.PREFILL] = bool(plan.prefill)
            states = ((chunk, self._prompts[chunk.uid].state) for chunk in plan.prefill)
            status.waiting = len(self._prompts)
            status.joining = any(not state.admitted and chunk.stop == state.num_tokens for chunk, state in states)

    def _preempt(self, keys: list[tuple[int, int]]) -> None:
        for uid, _ in keys:
            self._system.begin(self._sequences.drop(uid))
        self._forward.freed_by_answers()
