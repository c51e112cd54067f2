"""Run a language worker in costs. Its turns' decisions take pages and time; the turns hear how they end."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

from unifiedserve.messages.costs import Costs
from unifiedserve.placement import Instance, Placement, Stage
from unifiedserve.scheduling.simulation.batch import Batch
from unifiedserve.scheduling.simulation.clock import Action
from unifiedserve.scheduling.simulation.machine import Task, Work
from unifiedserve.scheduling.simulation.prompts import Prompts
from unifiedserve.scheduling.simulation.pulls import Pulls
from unifiedserve.scheduling.simulation.sequences import Sequences
from unifiedserve.scheduling.simulation.stretch import Stretch
from unifiedserve.scheduling.simulation.system import System
from unifiedserve.scheduling.state import Budget, DecodeState, EncodeWork, Plan, WaitingAnswers
from unifiedserve.scheduling.step_costs import StepCosts
from unifiedserve.scheduling.turn import (
    AnswersOffered,
    Batched,
    Begin,
    Decoded,
    Encoded,
    Event,
    Facts,
    Forgone,
    Free,
    Handed,
    Left,
    Neighbours,
    PagesFilled,
    Stepped,
    Stopped,
    Tells,
    Took,
    Turn,
    UnitOffered,
    Wrote,
)


class LanguageWorker:
    """Take steps: a pass over prompt chunks and sequences, then a batch of the encoder.

    With dual streams the batch goes on beside passes, on half of the cores; these have the others meanwhile.
    """

    def __init__(self, instance: Instance, budget: Budget, steps: StepCosts, system: System) -> None:
        self._instance = instance
        self._system = system
        self._turn = Turn(instance.stages, budget, rests=system.machine.sharing.rests, steps=steps)
        self._neighbours = Neighbours(system.placement, instance.name, system.status)
        self._near = self._names_near(system.placement)
        self._free = system.free_of(instance.name)
        self._prompts = Prompts(system, self._free)
        self._sequences = Sequences(system, self._free)
        self._pulls = Pulls(instance.name, system, self._turn.note, self.receive)
        self._inbox: list[Event] = []
        self._losses: list[tuple[Collection[int], Action]] = []  # to be forgotten
        self._batch: Batch | None = None
        self._stretch: Stretch | None = None
        cores = instance.threads(system.machine.sharing.threads(giving=False))
        self._half, self._rest = max(1, cores // 2), max(1, cores - cores // 2)
        self._dual = system.dual_streams and instance.has_both_models
        self._beside: Work | None = None  # the batch that goes on beside passes
        self._beside_ended = False
        self._busy = False
        self._heirs: Iterator[str] | None = None

    @property
    def costs(self) -> Costs:
        return self._turn.costs

    def receive(self, event: Event) -> None:
        self._inbox.append(event)
        if self._batch and isinstance(event, Begin):
            self._batch.cut()

    @property
    def decoding(self) -> Collection[int]:
        return self._sequences.uids

    def leave(self) -> list[Event]:
        self._system.stretching.pop(self, None)
        self._pulls.forgo_all()
        for _, heard in self._losses:
            heard()
        return [*map(Handed, self._sequences.give_up()), *self._inbox]

    def forget(self, uids: Collection[int], heard: Action) -> None:
        self._losses.append((uids, heard))

    def _forget(self) -> None:
        losses, self._losses = self._losses, []
        for uids, heard in losses:
            for uid in uids:
                for event in (Left(uid), Stopped(uid)):
                    self._turn.note(event)
                self._prompts.forget(uid)
                self._pulls.drop(uid)
            heard()

    def hand_over(self, heirs: Iterator[str]) -> None:
        self._heirs = heirs
        self._system.wake(self)

    def placed(self, placement: Placement) -> None:
        self._neighbours.placed(placement)
        self._near = self._names_near(placement)

    def _names_near(self, placement: Placement) -> set[str]:
        there = {each.name for each in placement.instances if each.memory == self._instance.memory}
        return there | {each.name for each in placement.beside(self._instance.name)}

    def turn(self) -> None:
        if self._busy:
            self.cut()
            return
        self._forget()
        inbox, self._inbox = self._inbox, []
        for event in inbox:
            self._accept(event)
        if self._heirs:
            self._give_up(self._heirs)
        plan, tells, leaves_cores = self._turn.take(self._facts())
        self._check(plan)
        self._tell(tells)
        if plan.preempt:
            self._preempt(plan)
        for uid in plan.forgo:
            self._pulls.forgo(uid)
            self._turn.note(Forgone(uid))
        for pull in plan.pull:
            self._pulls.begin(pull, self)
        if plan.has_work:
            self._run(plan, leaves_cores)
        elif self._beside_ended:
            self._end_beside()
        else:
            assert plan.wait_until > self._system.clock.now, "a worker must not spin"
            self._system.set_alarm(self, plan.wait_until)
        self._system.keep_pages(self._free)

    def _accept(self, event: Event) -> None:
        if self._system.is_lost(event):
            return
        match event:
            case Begin(ticket):
                self._pulls.forget(ticket.uid)
            case Encoded(uid, unit):
                self._prompts.take_encoded(uid, unit)
            case Handed(state):
                self._system.requests[state.ticket.uid].decodes = True
                self._sequences.begin(state)
            case Stopped(uid):
                self._pulls.forgo(uid)
            case Decoded(uid) if uid not in self._turn:
                return  # its last unit came before, and all is done
        self._turn.note(event)

    def _give_up(self, heirs: Iterator[str]) -> None:
        """Have others go on with all answers here."""
        for state in self._sequences.give_up():
            self._turn.note(Stopped(*state.key))
            request = self._system.requests[state.ticket.uid]
            self._system.reroute(request, next(heirs))
            self._send(request.ticket.route.decode, Handed(replace(state, ticket=request.ticket)))

    def _run(self, plan: Plan, leaves_cores: bool) -> None:
        """Do what is planned; then the next turn comes at once."""
        self._system.set_alarm(self, float("inf"))
        if plan.encode and self._dual:
            self._begin_beside(plan.encode)
            plan = plan._replace(encode=[])
        if plan.prefill or plan.decode:
            then = partial(self._run, plan._replace(prefill=[], decode=[]), leaves_cores)
            self._compute(self._forward(plan, leaves_cores), then)
        elif plan.encode:
            layers = self._system.costs.encoder_layers if self._turn.goes_between else 1
            self._batch = Batch(self._encode(plan.encode), layers)
            self._go_on(self._batch)
        elif self._beside_ended:
            self._end_beside()
        else:
            self._system.wake(self)

    def _begin_beside(self, work: Sequence[EncodeWork]) -> None:
        self._beside = self._encode(work)
        threads = self._system.machine.sharing.threads(giving=False)
        self._system.run(
            self._instance, Stage.ENCODE, threads, self._beside.seconds, self._tell_beside, most=self._half
        )

    def _tell_beside(self) -> None:
        self._beside_ended = True
        self._system.wake(self)

    def _end_beside(self) -> None:
        """Take the end of the batch in, between two steps; then the next turn comes at once."""
        assert self._beside
        self._beside.end()
        self._beside, self._beside_ended = None, False
        self._system.wake(self)

    def _go_on(self, batch: Batch) -> None:
        """Run the next layers of the encoder, or first the short prompts allowed before them."""
        if not batch.layers:
            self._batch = None
            batch.end()
            self._system.wake(self)
        elif plan := self._in_between(batch):
            self._compute(self._forward(plan, leaves_cores=False), partial(self._go_on, batch))
        else:
            batch.run(self._compute(batch.next(), partial(self._go_on, batch)))

    def _in_between(self, batch: Batch) -> Plan | None:
        """Take in requests that have come, and plan those that go in between."""
        begun = [event for event in self._inbox if isinstance(event, Begin)]
        if not self._turn.goes_between or not (begun or batch.looks):
            return None
        self._inbox = [event for event in self._inbox if not isinstance(event, Begin)]
        for event in begun:
            self._accept(event)
        plan, tells, _ = self._turn.between(self._facts())
        self._tell(tells)
        batch.looks = bool(plan.prefill)
        return plan if plan.prefill else None

    def _forward(self, plan: Plan, leaves_cores: bool) -> Work:
        """Take the pages that a pass needs. Without prompts it is for several, if they are sure to be alike."""
        for chunk in plan.prefill:
            self._system.waits.begun(chunk.uid, Stage.PREFILL, self._system.clock.now)
            if self._prompts.admit(chunk.uid):
                self._turn.note(Took(chunk.uid))
        return self._mixed(plan) if plan.prefill else self._decoding(plan, leaves_cores)

    def _mixed(self, plan: Plan) -> Work:
        tokens = sum(chunk.stop - chunk.start for chunk in plan.prefill)
        attended = sum((chunk.stop - chunk.start) * (chunk.start + chunk.stop) / 2 for chunk in plan.prefill)
        context = self._sequences.context(plan.decode)
        self._sequences.grow(plan.decode, 1)
        seconds = self._system.costs.mixed(tokens, attended, len(plan.decode), context)
        return Work(seconds, Stage.PREFILL, partial(self._end_pass, plan, self._system.clock.now))

    def _decoding(self, plan: Plan, giving: bool) -> Work:
        """Take the next step, and those after it while nothing happens that could change them."""
        rests = self._system.machine.sharing.rests
        if self._turn.only_decodes and not (rests or self._beside):
            return self._stretching(plan)
        giving = rests and (giving or bool(self._beside))
        costs, now, batch = self._system.costs, self._system.clock.now, len(plan.decode)
        context, quiet = self._sequences.context(plan.decode), self._system.quiet_until - now
        slower = self._system.slower(self._instance, self._system.machine.sharing.threads(giving))
        steps = 1
        if quiet > 0 and not giving and self._turn.only_decodes:
            steps = self._sequences.steps(plan.decode)
            slowest = slower * costs.decode(batch, context + batch * steps)
            steps = steps if steps * slowest <= quiet else max(1, int(quiet / slowest))
        self._sequences.grow(plan.decode, steps)
        seconds = [costs.decode(batch, context + batch * step, half=giving) for step in range(steps)]
        if steps == 1:
            return Work(seconds[0], Stage.DECODE, partial(self._end_pass, plan, now), giving)
        times = list(accumulate((slower * each for each in seconds), initial=now))
        return Work((times[-1] - now) / slower, Stage.DECODE, partial(self._end_passes, plan, times), giving)

    def _stretching(self, plan: Plan) -> Work:
        """Take steps until something happens that could change them: few things can where none rests."""
        costs, batch, now = self._system.costs, len(plan.decode), self._system.clock.now
        first = costs.decode(batch, self._sequences.context(plan.decode))
        slower = self._system.slower(self._instance, self._system.machine.sharing.threads(giving=False))
        steps = self._sequences.steps(plan.decode) if first > 0 else 1
        self._sequences.grow(plan.decode, 1)
        self._system.stretching[self] = self._free
        self._stretch = Stretch(plan.decode, now, slower * first, slower * batch * costs.context_token, steps)
        return Work(self._stretch.length / slower, Stage.DECODE, self._end_stretch)

    def settle(self) -> None:
        """Note the steps that are over, so that others see what they have come to."""
        if self._stretch and len(times := self._stretch.over()) > 1:
            self._end_steps(self._stretch, times)
            self._sequences.grow(self._stretch.keys, 1)
            self._tell(self._turn.tells_of_streams)

    def _end_stretch(self) -> None:
        stretch, self._stretch = self._stretch, None
        assert stretch
        del self._system.stretching[self]
        self._end_steps(stretch, stretch.over(last=True))

    def _end_steps(self, stretch: Stretch, times: list[float]) -> None:
        """Note the steps that ended at `times` but the first, and their pages."""
        if (steps := len(times) - 1) > 0:
            self._sequences.grow(stretch.keys, steps)
        self._end_passes(Plan(decode=stretch.keys), times)

    def pages_to_take(self) -> int:
        if not self._stretch or self._stretch.left <= 0:
            return 0
        return len(self._stretch.keys) * self._system.kv_pages(self._stretch.left) + len(self._sequences)

    def cut(self) -> None:
        """End the steps that go on with the one under way."""
        if self._stretch:
            self._stretch.cut()

    def is_near(self, name: str) -> bool:
        """Tell whether an instance and this one see each other: their pages, or what they tell of their work."""
        return name in self._near

    def _end_pass(self, plan: Plan, start: float) -> None:
        self._end_passes(plan, [start, self._system.clock.now])

    def _end_passes(self, plan: Plan, times: Sequence[float]) -> None:
        beside = self._neighbours.work
        self._system.waits.stepped(plan.decode, times[0])
        streams = self._sequences.advance(plan.decode, times[1:])
        if len(streams) < len(plan.decode):
            self._free_by_answers()
        self._turn.note(Stepped(times, plan.prefill, plan.decode, streams, beside))
        for chunk in plan.prefill:
            if self._system.requests[chunk.uid].lost:
                continue
            if self._prompts.prefill(chunk):
                self._hand_over(chunk.uid, chunk.stop)
            else:
                self._send_full_pages(chunk.uid)
        if any(self._system.requests[chunk.uid].shape.units for chunk in plan.prefill):
            self._system.freed(Stage.VISION, self._instance.memory, self)
            self._free_for_readers(Stage.PREFILL)

    def _hand_over(self, uid: int, tokens: int) -> None:
        """Let a prompt's answer begin with its first token."""
        request, system = self._system.requests[uid], self._system
        state = DecodeState(request.ticket, 0, tokens + 1, request.shape.kv_pages)
        request.prefilled = True
        system.waits.ready(uid, Stage.DECODE, system.clock.now)
        if system.tokens(request, [system.clock.now]):
            system.release(self._free, request, state.pages)
            self._free_by_answers()
            if system.travels(self._instance.name, request.ticket.route.decode):
                system.send(request.ticket.route.decode, Stopped(uid))
        else:
            self._send_answer(request.ticket.route.decode, state)

    def _send_full_pages(self, uid: int) -> None:
        """Offer what has become full of a prompt whose visual tokens are all here."""
        ticket = self._system.requests[uid].ticket
        if not self._system.travels(self._instance.name, ticket.route.decode) or not self._turn.all_encoded(uid):
            return
        if pages := self._prompts.filled(uid):
            self._system.requests[uid].offered = True
            self._system.send(ticket.route.decode, PagesFilled(ticket, pages))

    def _encode(self, work: Sequence[EncodeWork]) -> Work:
        requests = self._system.requests
        for uid, _ in work:
            self._system.waits.begun(uid, Stage.ENCODE, self._system.clock.now)
        tokens = sum(requests[uid].shape.units[unit].tokens for uid, units in work for unit in units)
        end = partial(self._end_batch, work, tokens, self._system.clock.now)
        return Work(self._system.costs.encode(tokens), Stage.ENCODE, end)

    def _end_batch(self, work: Sequence[EncodeWork], tokens: int, start: float) -> None:
        requests = self._system.requests
        for uid, units in work:
            for unit in () if requests[uid].lost else units:
                self._prompts.encode(uid, self._instance.name)
                self._system.waits.last_unit(uid, self._system.clock.now)
                self._turn.note(Wrote(uid, unit))
                self._send_unit(requests[uid].ticket.route.prefill, uid, unit)
        self._turn.note(Batched(tokens, start, self._system.clock.now))
        self._system.freed(Stage.VISION, self._instance.memory, self)

    def _preempt(self, plan: Plan) -> None:
        for key in plan.preempt:
            self._system.begin(self._sequences.drop(key))
            self._turn.note(Stopped(*key))
        self._free_by_answers()

    def _free_by_answers(self) -> None:
        """Tell hosts that may wait for pages that sequences have given theirs back."""
        self._system.freed(Stage.PREFILL, self._instance.memory, self)
        if self._system.rules.keeps_visual:
            self._system.freed(Stage.VISION, self._instance.memory, self)
        self._free_for_readers(Stage.DECODE)

    def _free_for_readers(self, stage: Stage) -> None:
        """Tell hosts that may wait for pages to read into, where pages travel."""
        if len(self._system.frees) > 1:
            self._system.freed(stage, self._instance.memory, self)

    def _send_unit(self, host: str, uid: int, unit: int) -> None:
        travels = self._system.travels(self._instance.name, host)
        self._send(host, UnitOffered(uid, unit) if travels else Encoded(uid, unit))

    def _send_answer(self, host: str, state: DecodeState) -> None:
        travels = self._system.travels(self._instance.name, host)
        kept = self._system.kept_pages(self._system.requests[state.ticket.uid])
        offered = AnswersOffered(WaitingAnswers(state.ticket, state.pages, kept))
        self._send(host, offered if travels else Handed(state))

    def _send(self, host: str, event: Event) -> None:
        """Send an event to an instance; to this very one without a detour."""
        if host == self._instance.name:
            self._accept(event)
        else:
            self._system.send(host, event)

    def _compute(self, work: Work, then: Action) -> Task:
        self._busy = True
        threads = self._system.machine.sharing.threads(work.giving)
        most = self._rest if self._beside else None
        ended = partial(self._computed, work, then)
        task = self._system.run(self._instance, work.stage, threads, work.seconds, ended, most)
        if self._stretch:
            self._stretch.run(task)
        return task

    def _computed(self, work: Work, then: Action) -> None:
        work.end()
        self._busy = False
        then()

    def _tell(self, tells: Tells) -> None:
        for stage in self._neighbours.tell(tells):
            self._system.freed(stage, self._instance.memory, self)

    def _facts(self) -> Facts:
        self._system.settle(self._instance.name)
        free = Free(self._free.kv, self._system.kv_total, self._free.visual)
        return Facts(self._system.clock.now, free, self._neighbours.around())

    def _check(self, plan: Plan) -> None:
        for planned, stage in ((plan.encode, Stage.ENCODE), (plan.prefill, Stage.PREFILL), (plan.decode, Stage.DECODE)):
            assert not planned or stage in self._instance.stages, f"{stage} is planned where it is not hosted"
