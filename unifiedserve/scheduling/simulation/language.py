"""A language worker in numbers: its policy, its prompts and its sequences (as `worker/language/lane.py`)."""

from functools import partial

from unifiedserve.config import Instance, Stage
from unifiedserve.messages.costs import Costs
from unifiedserve.scheduling.encode_prefill import schedule_in_between
from unifiedserve.scheduling.held_streams import HeldStreams
from unifiedserve.scheduling.pacing import heavy_within_share, leaves_cores, within_share
from unifiedserve.scheduling.policies import goes_between, policy_for
from unifiedserve.scheduling.simulation.batch import Batch
from unifiedserve.scheduling.simulation.clock import Action
from unifiedserve.scheduling.simulation.machine import Task
from unifiedserve.scheduling.simulation.measured import Measured
from unifiedserve.scheduling.simulation.messages import Begin, Encoded, Message, Patches, Prefilled
from unifiedserve.scheduling.simulation.neighbours import Neighbours
from unifiedserve.scheduling.simulation.prompts import Prompts
from unifiedserve.scheduling.simulation.sequences import Sequences
from unifiedserve.scheduling.simulation.steps import EncodeStep, ForwardStep, Work
from unifiedserve.scheduling.simulation.system import System
from unifiedserve.scheduling.state import Budget, Chunk, Plan, State


class LanguageWorker:
    """One step is: a pass over prompt chunks and sequences, then a batch of the encoder."""

    def __init__(self, instance: Instance, budget: Budget, system: System) -> None:
        hosted = frozenset(instance.stages)
        self._instance = instance
        self._hosted = hosted
        self._goes_between = goes_between(hosted, budget)
        self._neighbours = Neighbours(system, hosted, budget)
        self._policy = policy_for(hosted)
        self._budget = budget
        self._system = system
        self._prompts = Prompts(system, budget.order, prefills=Stage.PREFILL in hosted)
        self._sequences = Sequences(system)
        self._measured = Measured()
        self._streams = HeldStreams(budget)
        self._forward = ForwardStep(
            system, self._prompts, self._sequences, self._measured, self._streams, self._neighbours, self._send
        )
        self._encode = EncodeStep(system, self._prompts, self._measured, self._send)
        self._inbox: list[Message] = []
        self._batch: Batch | None = None
        self._busy = False
        self._wake = float("inf")

    @property
    def costs(self) -> Costs:
        return self._measured.costs

    def receive(self, message: Message) -> None:
        self._inbox.append(message)
        if self._batch and isinstance(message, Begin):
            self._batch.cut()

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
        plan = self._policy(self._state(), self._held_budget())
        self._check(plan)
        self._neighbours.tell(plan, self._prompts)
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
            leaves = self._neighbours.work and leaves_cores(self._streams.control.share)
            work = self._forward.begin(plan, others_work=leaves)
            self._compute(work, partial(self._run, plan._replace(prefill=[], decode=[])))
        elif plan.encode:
            self._streams.note_heavy()
            layers = self._system.costs.encoder_layers if self._goes_between else 1
            self._batch = Batch(self._encode.begin(plan.encode), plan.encode, layers)
            self._go_on(self._batch)
        else:
            self._system.wake(self)

    def _go_on(self, batch: Batch) -> None:
        """Run the next layers of the encoder, or first the short prompts that may go in before them."""
        if not batch.layers:
            self._batch = None
            batch.end()
            self._run(Plan())
        elif chunks := self._in_between(batch):
            plan = Plan(encode=batch.scheduled, prefill=chunks)
            self._neighbours.tell(plan, self._prompts)
            work = self._forward.begin(plan, others_work=False)
            self._compute(work, partial(self._went_between, batch, self._system.clock.now))
        else:
            batch.run(self._compute(batch.next(), partial(self._go_on, batch)))

    def _in_between(self, batch: Batch) -> list[Chunk]:
        """Take in requests that have come, and return the chunks of those that go in between."""
        requests = [message for message in self._inbox if isinstance(message, Begin)]
        if not self._goes_between or not (requests or batch.looks):
            return []
        self._inbox = [message for message in self._inbox if not isinstance(message, Begin)]
        for request in requests:
            self.accept(request)
        sharing = self._measured.encoder_shares(self._system.clock.now)
        uids = {work.uid for work in batch.scheduled}
        chunks = schedule_in_between(self._state(), self._budget, uids, sharing)
        batch.looks = bool(chunks)
        return chunks

    def _went_between(self, batch: Batch, start: float) -> None:
        self._neighbours.tell(Plan(encode=batch.scheduled), self._prompts)
        self._measured.went_between(self._system.clock.now - start)
        self._go_on(batch)

    def _compute(self, work: Work, then: Action) -> Task:
        self._busy = True
        threads = self._system.machine.sharing.threads(work.giving)
        return self._system.run(self._instance, threads, work.seconds, partial(self._computed, work, then))

    def _computed(self, work: Work, then: Action) -> None:
        work.end()
        self._busy = False
        then()

    def _sleep(self, until: float) -> None:
        """Wait for a message, or for a time (seconds)."""
        assert until > self._system.clock.now, "a worker must not spin"
        self._wake = until
        if until < float("inf"):
            self._system.clock.at(until, partial(self._awake, until))

    def _awake(self, time: float) -> None:
        if self._wake == time:
            self._system.wake(self)

    def _held_budget(self) -> Budget:
        """Return the budget, less what streams would miss their target for."""
        if Stage.DECODE in self._hosted:
            self._system.status.share = self._streams.control.share if self._sequences.states else 1.0
            return within_share(self._budget, self._streams.control.share)
        rests = self._system.machine.sharing.rests
        return self._budget if rests else heavy_within_share(self._budget, self._system.status.share)

    def _state(self) -> State:
        """Return what the policy sees: what is here, and what other workers tell."""
        system = self._system
        return State(
            prefills=self._prompts.in_turn(),
            decodes=self._sequences.states,
            kv_free=system.free.kv,
            kv_total=system.kv_total,
            visual_free=system.free.visual - self._prompts.promised,
            now=system.clock.now,
            pace=self._neighbours.pace(self._measured.pace),
            costs=self._measured.costs,
        )

    def _check(self, plan: Plan) -> None:
        for planned, stage in ((plan.encode, Stage.ENCODE), (plan.prefill, Stage.PREFILL), (plan.decode, Stage.DECODE)):
            assert not planned or stage in self._hosted, f"{stage} is planned where it is not hosted"

    def _preempt(self, keys: list[tuple[int, int]]) -> None:
        for uid, _ in keys:
            self._system.begin(self._sequences.drop(uid))
        self._forward.freed_by_answers()
