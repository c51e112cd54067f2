"""Take one turn of an instance: from events to its next step. Pure: no clock, no tensor, no page number."""

from collections.abc import Iterable, Sequence

from unifiedserve.messages.costs import Costs
from unifiedserve.placement import Stage
from unifiedserve.scheduling.early_reads import schedule_forgone
from unifiedserve.scheduling.encode_prefill import first_without_pages, schedule_in_between
from unifiedserve.scheduling.held_streams import HeldStreams
from unifiedserve.scheduling.pacing import heavy_within_share, joins_soon, leaves_cores, within_share
from unifiedserve.scheduling.policies import goes_between, policy_for
from unifiedserve.scheduling.pulls import READ_SECONDS, first_left, schedule_pulls
from unifiedserve.scheduling.state import Budget, EncodeWork, Plan, State
from unifiedserve.scheduling.step_costs import StepCosts
from unifiedserve.scheduling.tbt_control import TbtControl
from unifiedserve.scheduling.turn.arrivals import Arrivals
from unifiedserve.scheduling.turn.facts import (
    AnswersOffered,
    Around,
    Batched,
    Begin,
    Decision,
    Decoded,
    Encoded,
    Event,
    Facts,
    Forgone,
    Handed,
    Launched,
    Left,
    PagesFilled,
    Pulling,
    Ready,
    Renewed,
    Stepped,
    Stopped,
    Tells,
    Took,
    UnitOffered,
    Wrote,
)
from unifiedserve.scheduling.turn.measured import Measured
from unifiedserve.scheduling.turn.prompts import Prompts
from unifiedserve.scheduling.turn.sequences import Sequences


class Turn:
    """Hold what the language stages of an instance have, and decide how they go on.

    Its counts follow what has happened, never what was planned: pages may be lost to another instance, and drafts give
    several tokens. Its driver notes each event at once, and asks when there is nothing else to do.
    """

    def __init__(
        self,
        hosted: Iterable[Stage],
        budget: Budget,
        *,
        rests: bool,
        share: float = 1.0,
        steps: StepCosts = StepCosts(),  # noqa: B008
    ) -> None:
        """Begin with a share of the budgets for heavy work beside streams; where decode `rests` others get its cores.

        `steps` are what was tried out before.
        An instance that does not host a stage plans nothing for it.
        """
        self._hosted = frozenset(hosted)
        self._budget = budget
        self._rests = rests
        self._policy = policy_for(self._hosted, budget.scheduling)
        self._measured = Measured(steps)
        self._streams = HeldStreams(budget, share)
        self._prompts = Prompts(budget.order)
        self._sequences = Sequences()
        self._arrivals = Arrivals()
        self._encoding: list[EncodeWork] = []  # the present batch of the encoder

    @property
    def costs(self) -> Costs:
        """Return what steps have taken lately."""
        return self._measured.costs

    @property
    def only_decodes(self) -> bool:
        """Tell whether nothing here waits for anything but the next step of the sequences."""
        return not (self._prompts.any_here or self._arrivals.waits)

    @property
    def tells_of_streams(self) -> Tells:
        """Return what the other workers may know of the streams here: all is heavy work's where none are left."""
        control = self._streams.control if len(self._sequences) else TbtControl()
        return Tells({}, share=control.share, tbt=control.tbt)

    @property
    def goes_between(self) -> bool:
        """Tell whether prompts may go in between layers of the encoder."""
        return goes_between(self._hosted, self._budget)

    def all_encoded(self, uid: int) -> bool:
        """Tell whether the visual tokens of all media of a prompt are here. Raises KeyError if the prompt is not."""
        return self._prompts[uid].all_encoded

    def __contains__(self, uid: int) -> bool:
        """Tell whether a prompt is here."""
        return uid in self._prompts

    def note(self, event: Event) -> None:
        """Take in what has happened. Raises KeyError if it is told of a prompt that is not here."""
        match event:
            case Begin():
                self._prompts.begin(event)
            case Ready(uid, unit):
                self._prompts.ready(uid, unit)
            case Decoded(uid):
                self._prompts.decoded(uid)
            case Encoded(uid, unit):
                self._prompts.encoded(uid, unit)
            case Renewed():
                self._prompts.renew(event)
            case Took(uid):
                self._prompts.admit(uid)
            case Wrote(uid, unit):
                self._prompts.encoded(uid, unit)
            case Left(uid):
                self._prompts.drop(uid)
            case UnitOffered(uid, unit):
                self._prompts.offer(uid, unit)
            case AnswersOffered(answers):
                self._arrivals.offer(answers)
            case PagesFilled(ticket, pages):
                self._arrivals.fill(ticket, pages)
            case Pulling(uid, units, early):
                self._pull(uid, units, early)
            case Forgone(uid):
                self._arrivals.forgo(uid)
            case Handed(state):
                self._arrivals.drop(state.ticket.uid)
                self._sequences.begin(state)
            case Launched(streams):
                self._sequences.advance(streams)
            case Stopped(uid, answer):
                if answer is None:
                    self._arrivals.drop(uid)
                self._sequences.drop(self._sequences.of(uid, answer))
            case Stepped():
                self._stepped(event)
            case Batched(tokens, start, end):
                self._streams.note_heavy()
                self._measured.encoded(tokens, start, end)
                self._encoding = []

    def take(self, facts: Facts) -> Decision:
        """Return what to do next: a pass over prompt chunks and sequences, then a batch of the encoder.

        While one is under way there is no other. Where no sequence decodes, reads that have begun are waited for a
        moment: a pass that began without it would be long.
        """
        state = self._state(facts)
        if forgone := schedule_forgone(state):  # then all is planned with what that leaves
            plan = Plan(forgo=forgone)
            return Decision(plan, self._tells(plan, state))
        pulls = schedule_pulls(state)
        if any(pull.units for pull in pulls) and Stage.DECODE not in self._hosted and not self._encoding:
            plan = Plan(pull=pulls, wait_until=facts.now + READ_SECONDS)
            return Decision(plan, self._tells(plan, state))
        plan = self._policy(state, self._held_budget(facts.around))
        if self._encoding:
            self._streams.note_heavy()
            plan = plan._replace(encode=[])
        else:
            self._encoding = plan.encode
        plan = plan._replace(pull=pulls)
        leaves = facts.around.work and not plan.prefill and leaves_cores(self._streams.control.share)
        return Decision(plan, self._tells(plan, state), leaves)

    def between(self, facts: Facts) -> Decision:
        """Return which short prompts go in before the next layer of the encoder; without any it goes on at once.

        Nothing may have happened since the batch began but requests that came, and what goes in between.
        """
        uids, sharing = {uid for uid, _ in self._encoding}, self._measured.encoder_shares(facts.now)
        state = self._state(facts)
        chunks = schedule_in_between(state, self._budget, uids, sharing)
        plan = Plan(encode=self._encoding, prefill=chunks)
        return Decision(plan, self._tells(plan, state))

    def counts(self) -> dict[Stage, tuple[int, int]]:
        """Return how many requests run and wait in each stage that is hosted."""
        encode, prefill = self._prompts.counts()
        held = len(self._sequences) + len(self._arrivals)
        running = min(len(self._sequences), self._budget.max_running)
        counts = {Stage.ENCODE: encode, Stage.PREFILL: prefill, Stage.DECODE: (running, held - running)}
        return {stage: count for stage, count in counts.items() if stage in self._hosted}

    def _stepped(self, step: Stepped) -> None:
        prompt_tokens = sum(chunk.stop - chunk.start for chunk in step.chunks)
        for ended in step.times[1:] if step.keys else ():
            self._streams.came(step.keys, ended, step.beside or prompt_tokens > 0)
        self._measured.stepped(len(step.keys), prompt_tokens, step.times)
        if len(step.streams) < len(step.keys):
            self._sequences.drop({*step.keys} - {stream.key for stream in step.streams})
        self._sequences.advance(step.streams)
        for chunk in step.chunks:
            self._prompts.advance(chunk)

    def _pull(self, uid: int, units: Sequence[int], early: int) -> None:
        if units:
            self._prompts.pull(uid, units)
        elif early:
            self._arrivals.pull_early(uid, early)
        else:
            self._arrivals.pull(uid)

    def _held_budget(self, around: Around) -> Budget:
        """Return the budget, less what streams would miss their target for."""
        if Stage.DECODE in self._hosted:
            return within_share(self._budget, self._streams.control.share)
        return self._budget if self._rests else heavy_within_share(self._budget, around.share)

    def _state(self, facts: Facts) -> State:
        around = facts.around
        return State(
            prefills=self._prompts.in_turn(facts.now),
            decodes=self._sequences.in_turn(),
            kv_free=facts.free.kv,
            kv_total=facts.free.kv_total,
            visual_free=facts.free.visual,
            offering=self._prompts.offering(facts.now),
            arriving=self._arrivals.in_turn(),
            early=self._arrivals.early_in_turn(),
            shares_kv=around.shares_kv,
            now=facts.now,
            pace=self._measured.pace._replace(
                others_work=self._rests and around.work, waiting=around.waiting, joining=around.joining
            ),
            costs=self._measured.costs,
            steps=self._measured.steps,
            first_elsewhere=around.first,
        )

    def _tells(self, plan: Plan, state: State) -> Tells:
        """Return what lets the other workers pace themselves."""
        planned = {Stage.ENCODE: self._encoding, Stage.PREFILL: plan.prefill}
        tells = Tells({stage: bool(work) for stage, work in planned.items() if stage in self._hosted})
        if Stage.PREFILL in self._hosted:
            joining = joins_soon(plan, self._prompts.__getitem__, self._budget)
            begun = [self._prompts[chunk.uid] for chunk in plan.prefill]
            first = first_without_pages(state, self._budget, begun)
            tells = tells._replace(waiting=len(self._prompts), joining=joining, first={Stage.PREFILL: first})
        if Stage.DECODE in self._hosted:
            firsts, streams = {**tells.first, Stage.DECODE: first_left(state, plan.pull)}, self.tells_of_streams
            tells = tells._replace(share=streams.share, tbt=streams.tbt, first=firsts)
        return tells
