"""A language worker in numbers: its policy, its prompts and its sequences (as `worker/language/lane.py`)."""

from functools import partial
from itertools import accumulate, pairwise

from unifiedserve.config import Instance, Stage
from unifiedserve.scheduling.pacing import learn_encode, learn_step
from unifiedserve.scheduling.policies import policy_for
from unifiedserve.scheduling.simulation.messages import Begin, Encoded, Message, PagesFreed, Patches, Prefilled
from unifiedserve.scheduling.simulation.prompts import Prompts
from unifiedserve.scheduling.simulation.sequences import Sequences
from unifiedserve.scheduling.simulation.system import System
from unifiedserve.scheduling.state import Budget, Chunk, Costs, DecodeState, Pace, Plan, State

_HEAVY = (Stage.VISION, Stage.ENCODE, Stage.PREFILL)
_LEARNT = 30  # steps after which what was learnt before has no weight


class LanguageWorker:
    """One step is: a pass over prompt chunks and sequences, then a batch of the encoder."""

    def __init__(self, instance: Instance, budget: Budget, system: System) -> None:
        hosted = frozenset(instance.stages)
        self._instance = instance
        self._hosted = hosted
        self._policy = policy_for(hosted)
        self._budget = budget
        self._system = system
        self._prompts = Prompts(system, prefills=Stage.PREFILL in hosted)
        self._sequences = Sequences(system)
        self._neighbours = [stage for stage in _HEAVY if stage not in hosted]
        self._pace = Pace()
        self._costs = Costs()
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
        if plan.prefill or plan.decode:
            self._begin_pass(plan)
        elif plan.encode:
            self._begin_encoding(plan)
        elif plan.has_work:
            self._system.wake(self)
        else:
            self._sleep(plan.wait_until)

    def _check(self, plan: Plan) -> None:
        for planned, stage in ((plan.encode, Stage.ENCODE), (plan.prefill, Stage.PREFILL), (plan.decode, Stage.DECODE)):
            assert not planned or stage in self._hosted, f"{stage} is planned where it is not hosted"

    def _sleep(self, until: float) -> None:
        """Wait for a message, or for a time."""
        assert until > self._system.clock.now, "a worker must not spin"
        self._wake = until
        if until < float("inf"):
            self._system.clock.at(until, partial(self._awake, until))

    def _awake(self, time: float) -> None:
        if self._wake == time:
            self._system.wake(self)

    def _state(self) -> State:
        """Return what the policy sees, and of other workers what they tell."""
        system, elsewhere = self._system, Stage.PREFILL not in self._hosted
        pace = Pace(
            *self._pace[:2],
            others_work=system.machine.sharing.rests and self._others_work,
            waiting=system.status.waiting if elsewhere else 0,
            joining=system.status.joining and elsewhere,
        )
        visual_free = system.free.visual - self._prompts.promised
        kv_free, kv_total, now = system.free.kv, system.kv_total, system.clock.now
        return State(
            self._prompts.states, self._sequences.states, kv_free, kv_total, visual_free, now, pace, self._costs
        )

    @property
    def _others_work(self) -> bool:
        return any(self._system.status.working[stage] for stage in self._neighbours)

    def _tell(self, plan: Plan) -> None:
        status = self._system.status
        if Stage.ENCODE in self._hosted:
            status.working[Stage.ENCODE] = bool(plan.encode)
        if Stage.PREFILL in self._hosted:
            status.working[Stage.PREFILL] = bool(plan.prefill)
            states = ((chunk, self._prompts[chunk.uid].state) for chunk in plan.prefill)
            status.waiting = len(self._prompts)
            status.joining = any(not state.admitted and chunk.stop == state.num_tokens for chunk, state in states)

    def _run(self, seconds: float, ended: partial[None], *, giving: bool = False) -> None:
        self._busy, self._wake = True, float("inf")
        self._system.run(self._instance, self._system.machine.sharing.threads(giving), seconds, ended)

    def _begin_pass(self, plan: Plan) -> None:
        """Take the pages that the step needs, and compute."""
        for chunk in plan.prefill:
            self._admit(chunk)
        if plan.prefill:
            self._begin_mixed(plan)
        else:
            self._begin_decoding(plan)

    def _begin_mixed(self, plan: Plan) -> None:
        tokens = sum(chunk.stop - chunk.start for chunk in plan.prefill)
        attended = sum((chunk.stop - chunk.start) * (chunk.start + chunk.stop) / 2 for chunk in plan.prefill)
        context = self._sequences.context(plan.decode)
        self._sequences.grow(plan.decode, 1)
        seconds = self._system.costs.mixed(tokens, attended, len(plan.decode), context)
        self._run(seconds, partial(self._end_pass, plan, tokens, self._system.clock.now))

    def _begin_decoding(self, plan: Plan) -> None:
        """Take the next step, and those after it that are the same if nothing happens meanwhile."""
        costs, now, giving = self._system.costs, self._system.clock.now, self._others_work
        batch, quiet = len(plan.decode), self._system.quiet_until - now
        most = self._sequences.steps(plan.decode) if quiet > 0 and not (giving or len(self._prompts)) else 1
        context = self._sequences.context(plan.decode)
        slowest = costs.decode(batch, context + batch * most, half=giving)
        steps = max(1, int(min(most, quiet / slowest)))
        self._sequences.grow(plan.decode, steps)
        seconds = [costs.decode(batch, context + batch * step, half=giving) for step in range(steps)]
        if steps == 1:
            self._run(seconds[0], partial(self._end_pass, plan, 0, now), giving=giving)
        else:
            self._run(sum(seconds), partial(self._end_steps, plan, list(accumulate(seconds, initial=now))))

    def _end_steps(self, plan: Plan, times: list[float]) -> None:
        """End steps that followed each other without a break, between these times (seconds)."""
        for start, end in list(pairwise(times))[-_LEARNT:-1]:
            self._costs = learn_step(self._costs, len(plan.decode), 0, end - start)
        self._sequences.advance(plan.decode, times[1:-1])
        self._end_pass(plan, 0, times[-2])

    def _admit(self, chunk: Chunk) -> None:
        state = self._prompts[chunk.uid].state
        assert state.prefilled == chunk.start < chunk.stop <= state.reach
        inside = any(unit.position < chunk.stop < unit.position + unit.tokens for unit in state.units)
        assert not (state.whole_units and inside)
        if not state.admitted:
            state.admitted = True
            self._system.free.kv -= state.kv_pages
            assert self._system.free.kv >= 0

    def _end_pass(self, plan: Plan, tokens: int, start: float) -> None:
        ended = self._sequences.advance(plan.decode, [self._system.clock.now])
        for chunk in plan.prefill:
            ended |= self._prefilled(chunk)
        if ended:
            self._freed_by_answers()
        if plan.prefill:
            self._freed(Stage.ENCODE)
        self._learn(plan, tokens, start)
        self._busy = False
        if plan.encode:
            self._begin_encoding(plan)
        else:
            self._system.wake(self)

    def _learn(self, plan: Plan, tokens: int, start: float) -> None:
        now = self._system.clock.now
        if plan.decode:
            self._pace = Pace(start, now)
        self._costs = learn_step(self._costs, len(plan.decode), tokens, now - start)

    def _prefilled(self, chunk: Chunk) -> bool:
        """Advance a prompt; return whether pages of the KV cache came free, because its only token was the first."""
        prompt = self._prompts[chunk.uid]
        self._prompts.advance(prompt, chunk.stop)
        if not prompt.complete:
            return False
        self._prompts.drop_if_done(chunk.uid)
        state = DecodeState(prompt.state.ticket, 0, chunk.stop + 1, self._system.kv_pages(chunk.stop))
        if self._system.tokens(prompt.request, [self._system.clock.now]):
            self._system.release(prompt.request, state)
            return True
        self._system.send(Stage.DECODE, Prefilled(prompt.request, state), self)
        return False

    def _begin_encoding(self, plan: Plan) -> None:
        now = self._system.clock.now
        units = [self._prompts[uid].state.units[number] for uid, numbers in plan.encode for number in numbers]
        tokens = sum(unit.tokens for unit in units)
        self._run(self._system.costs.encode(tokens), partial(self._end_encoding, plan, tokens, now))

    def _end_encoding(self, plan: Plan, tokens: int, start: float) -> None:
        for uid, units in plan.encode:
            for unit in units:
                self._prompts.encode(uid, unit)
                self._system.send(Stage.PREFILL, Encoded(uid, unit), self)
            self._prompts.drop_if_done(uid)
        self._costs = learn_encode(self._costs, tokens, self._system.clock.now - start)
        self._freed(Stage.VISION)
        self._busy = False
        self._system.wake(self)

    def _preempt(self, keys: list[tuple[int, int]]) -> None:
        for uid, _ in keys:
            self._system.begin(self._sequences.drop(uid))
        self._freed_by_answers()

    def _freed_by_answers(self) -> None:
        self._freed(Stage.PREFILL)
        if self._system.rules.keeps_visual:
            self._freed(Stage.ENCODE)

    def _freed(self, stage: Stage) -> None:
        """Tell the stage that takes pages of a buffer that there are more."""
        if stage not in self._hosted:
            self._system.send(stage, PagesFreed())
