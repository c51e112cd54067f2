"""Workers in numbers: instances with the policies that really run, over counted pages, step by step.

Pure: no torch, no clock, no I/O. A step of the simulation is one turn of every instance and takes a second.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from unifiedserve.config import Stage
from unifiedserve.messages.ticket import Ticket
from unifiedserve.scheduling.policies import Policy, policy_for
from unifiedserve.scheduling.queue import Queue
from unifiedserve.scheduling.state import (
    Budget,
    Chunk,
    DecodeState,
    EncodeWork,
    Pace,
    PrefillState,
    State,
    Unit,
    VisionState,
)
from unifiedserve.scheduling.vision import schedule_vision


class Arrival(NamedTuple):
    """A request that comes: text tokens before each unit and behind the last, the units' visual tokens, and how many
    tokens it generates. Each unit fills one page of the patch buffer.
    """

    ticket: Ticket  # its arrival is the number of the step
    gaps: list[int]
    units: list[int]
    generate: int


@dataclass(slots=True)
class FreePages:
    """Pages of the three buffers that are free."""

    kv: int
    visual: int
    patch: int


class Rules(NamedTuple):
    """What the model's family demands: chunks that end within no unit, or visual tokens that are kept for decode.

    Kept ones are no part of the prompt, which needs all of them from its start.
    """

    whole_units: bool = False
    keeps_visual: bool = False


@dataclass(slots=True)
class _Request:
    """A request and how far it has come. A preempted one starts anew with what it had generated."""

    arrival: Arrival
    generated: int = 0
    visual_held: int = 0  # pages
    promised: int = 0  # pages of the visual buffer, not written yet
    vision: VisionState | None = None
    prefill: PrefillState | None = None
    decode: DecodeState | None = None


@dataclass(slots=True)
class _Instance:
    hosted: frozenset[Stage]
    policy: Policy
    pace: Pace = field(default_factory=Pace)


class Simulator:
    """The requests of one engine, its buffers, and its instances with their stages."""

    def __init__(
        self,
        instances: Iterable[Iterable[Stage]],
        budget: Budget,
        pages: FreePages,
        arrivals: Iterable[Arrival],
        rules: Rules = Rules(),  # noqa: B008
    ) -> None:
        language = [frozenset(stages) - {Stage.VISION} for stages in instances]
        self._instances = [_Instance(stages, policy_for(stages)) for stages in language if stages]
        self._budget = budget
        self._rules = rules
        self._kv_total = pages.kv
        self._coming = sorted(arrivals, key=lambda arrival: arrival.ticket.arrival, reverse=True)
        self._requests: dict[int, _Request] = {}
        self._prompts: Queue[PrefillState] = Queue(budget.order)
        self._media: Queue[VisionState] = Queue(budget.order)
        self.free = pages
        self.now = 0.0
        self.finished: dict[int, float] = {}  # uid -> seconds
        self.preemptions = 0

    @property
    def done(self) -> bool:
        """Tell whether every request has come and finished."""
        return not self._coming and not self._requests

    def step(self) -> None:
        """Let in who has arrived, and give every stage a turn."""
        while self._coming and self._coming[-1].ticket.arrival <= self.now:
            arrival = self._coming.pop()
            self._requests[arrival.ticket.uid] = request = _Request(arrival)
            self._enter(request)
        self.now += 1
        self._decode_media()
        for instance in self._instances:
            self._run(instance)

    def _enter(self, request: _Request) -> None:
        """Begin a request, or begin it again after a preemption."""
        ticket, gaps, counts, _ = request.arrival
        position, units = 0, []
        for gap, tokens in zip(gaps, counts, strict=False):
            position += gap
            units.append(Unit(tokens, 0 if self._rules.keeps_visual else position, self._pages(tokens)))
            position += 0 if self._rules.keeps_visual else tokens
        total = position + gaps[-1] + request.generated
        request.prefill = PrefillState(ticket, total, self._pages(total), units, whole_units=self._rules.whole_units)
        self._prompts.add(request.prefill)
        if units:
            request.vision = VisionState(ticket, len(units))
            self._media.add(request.vision)

    def _decode_media(self) -> None:
        """Admit requests to vision; one unit more of each that is admitted becomes ready."""
        states = list(self._media.in_turn(self.now))
        promised = sum(state.pages for state in states if state.admitted)
        for uid in schedule_vision(states, self.free.patch - promised):
            self._vision(uid).admit()
        for state in states:
            if state.admitted:
                self._unit_ready(self._requests[state.ticket.uid], state)
        assert self.free.patch >= 0

    def _unit_ready(self, request: _Request, state: VisionState) -> None:
        prompt = self._prompt(state.ticket.uid)
        prompt.decode_unit(next(i for i, unit in enumerate(prompt.units) if not unit.ready))
        self.free.patch -= 1
        state.pages -= 1
        if state.pages == 0:
            self._media.remove(state)
            request.vision = None

    def _run(self, instance: _Instance) -> None:
        plan = instance.policy(self._state(instance), self._budget)
        for work in plan.encode:
            assert Stage.ENCODE in instance.hosted, "encode is planned where it is not hosted"
            self._encode(work)
        for uid, _ in plan.preempt:
            self._preempt(uid)
        if plan.decode:
            assert Stage.DECODE in instance.hosted, "decode is planned where it is not hosted"
            instance.pace = Pace(self.now, self.now + 1)
        for uid, _ in plan.decode:
            self._advance(uid)
        for chunk in plan.prefill:
            assert Stage.PREFILL in instance.hosted, "prefill is planned where it is not hosted"
            self._prefill(chunk)

    def _state(self, instance: _Instance) -> State:
        """Return what an instance holds: nothing of stages that it does not host."""
        requests = list(self._requests.values())
        media = any(request.vision for request in requests)
        return State(
            [prompt for prompt in self._prompts.in_turn(self.now) if self._keeps(instance, prompt)],
            self._sequences() if Stage.DECODE in instance.hosted else [],
            self.free.kv,
            self._kv_total,
            self.free.visual - sum(request.promised for request in requests),
            self.now,
            instance.pace._replace(others_work=media),
        )

    def _sequences(self) -> list[DecodeState]:
        sequences = [request.decode for request in self._requests.values() if request.decode]
        return sorted(sequences, key=lambda sequence: sequence.turn)

    @staticmethod
    def _keeps(instance: _Instance, prompt: PrefillState) -> bool:
        """Tell whether an instance keeps a prompt: without prefill only until all of it is encoded."""
        return Stage.PREFILL in instance.hosted or (Stage.ENCODE in instance.hosted and not prompt.all_encoded)

    def _encode(self, work: EncodeWork) -> None:
        request, prompt = self._requests[work.uid], self._prompt(work.uid)
        if not prompt.reserved:
            prompt.reserve()
            request.promised = prompt.visual_pages
        for number in work.units:
            unit = prompt.units[number]
            assert unit.ready
            assert not unit.encoded
            prompt.encode_unit(number)
            request.promised -= unit.pages
            request.visual_held += unit.pages
            self.free.visual -= unit.pages
            self.free.patch += 1
        assert self.free.visual >= 0

    def _prefill(self, chunk: Chunk) -> None:
        request, prompt = self._requests[chunk.uid], self._prompt(chunk.uid)
        assert prompt.prefilled == chunk.start < chunk.stop <= prompt.reach
        inside = any(unit.position < chunk.stop < unit.position + unit.tokens for unit in prompt.units)
        assert not (prompt.whole_units and inside)
        if not prompt.admitted:
            prompt.admit()
            self.free.kv -= prompt.kv_pages
            assert self.free.kv >= 0
        prompt.prefill(chunk.stop)
        if chunk.stop == prompt.num_tokens:
            if not self._rules.keeps_visual:
                self._release_visual(request)
            self._prompts.remove(prompt)
            request.prefill = None
            request.decode = DecodeState(prompt.ticket, 0, chunk.stop + 1, prompt.kv_pages)
            self._generated(request)

    def _advance(self, uid: int) -> None:
        sequence = self._sequence(uid)
        grown = self._pages(sequence.num_tokens)
        self.free.kv -= grown - sequence.pages
        assert self.free.kv >= 0
        sequence.pages = grown
        sequence.num_tokens += 1
        self._generated(self._requests[uid])

    def _generated(self, request: _Request) -> None:
        """Count a token more; the last one ends the request."""
        request.generated += 1
        if request.generated >= request.arrival.generate:
            uid = request.arrival.ticket.uid
            self._release_sequence(uid)
            del self._requests[uid]
            self.finished[uid] = self.now

    def _preempt(self, uid: int) -> None:
        self._release_sequence(uid)
        self.preemptions += 1
        self._enter(self._requests[uid])

    def _release_sequence(self, uid: int) -> None:
        request = self._requests[uid]
        self.free.kv += self._sequence(uid).pages
        self._release_visual(request)
        request.decode = None

    def _release_visual(self, request: _Request) -> None:
        self.free.visual += request.visual_held
        request.visual_held = 0

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self._budget.kv_page_tokens)

    def _vision(self, uid: int) -> VisionState:
        state = self._requests[uid].vision
        assert state is not None
        return state

    def _prompt(self, uid: int) -> PrefillState:
        state = self._requests[uid].prefill
        assert state is not None, "a prompt is planned that has left"
        return state

    def _sequence(self, uid: int) -> DecodeState:
        state = self._requests[uid].decode
        assert state is not None, "an answer is planned that has left"
        return state
