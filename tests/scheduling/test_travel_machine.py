"""Pages that travel: whatever happens, in whatever order, none is taken twice, lost or kept for ever."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import Stage
from unifiedserve.scheduling import Budget, DecodeState, Plan, WaitingAnswers
from unifiedserve.scheduling.turn import (
    AnswersOffered,
    Around,
    Begin,
    Encoded,
    Facts,
    Forgone,
    Free,
    Handed,
    Left,
    PagesFilled,
    Pulling,
    Shape,
    Stepped,
    Stopped,
    Streamed,
    Turn,
    UnitOffered,
    UnitShape,
)

PAGE, KV, VISUAL = 4, 16, 12
MOST = 10  # pages of a prompt
TOKENS = 9  # of an answer
BUDGET = Budget(prefill_tokens=64, encode_tokens=64, max_running=3, kv_page_tokens=PAGE)


@dataclass
class Prompt:
    """A request whose prompt is prefilled in another memory, and what its pages are here."""

    ticket: Ticket
    pages: int
    filled: int = 0
    held: int = 0
    come: bool = False  # its answer
    reading: bool = False
    stream: DecodeState | None = None
    left: int = TOKENS

    @property
    def unfilled(self) -> int:
        """Pages that may still become full before the answer comes."""
        return 0 if self.come else self.pages - 1 - self.filled


class Machine(RuleBasedStateMachine):
    """The decode side of one instance and the prefill side of another, each with what it reads from other memories."""

    @initialize()
    def begin(self) -> None:
        self.decode, self.prefill = (Turn([stage], BUDGET, rests=False) for stage in (Stage.DECODE, Stage.PREFILL))
        self.kv, self.visual, self.uid, self.now, self.shared = KV, VISUAL, 0, 0.0, False
        self.prompts: dict[int, Prompt] = {}
        self.units: dict[int, tuple[int, set[int], bool]] = {}  # room, what has not come, whether it has pages

    def ticket(self, priority: int = 0) -> Ticket:
        self.uid += 1
        return Ticket(self.uid, float(self.uid), priority)

    def choose(self, uids: list[int], data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(uids)))

    @rule(pages=st.integers(3, MOST), priority=st.integers(-1, 1))
    def ask(self, pages: int, priority: int) -> None:
        ticket = self.ticket(priority)
        self.prompts[ticket.uid] = Prompt(ticket, pages)

    @precondition(lambda self: any(each.unfilled for each in self.prompts.values()))
    @rule(data=st.data(), more=st.integers(1, MOST), turns=st.booleans())
    def fill(self, data: st.DataObject, more: int, turns: bool) -> None:
        prompt = self.prompts[self.choose([uid for uid, each in self.prompts.items() if each.unfilled], data)]
        more = min(more, prompt.unfilled)
        prompt.filled += more
        self.decode.note(PagesFilled(prompt.ticket, more))
        if turns:
            self.turn()

    @precondition(lambda self: any(not each.come for each in self.prompts.values()))
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        self.come(self.choose([uid for uid, each in self.prompts.items() if not each.come], data))

    def come(self, uid: int) -> None:
        prompt = self.prompts[uid]
        prompt.come = True
        self.decode.note(AnswersOffered(WaitingAnswers(prompt.ticket, prompt.pages)))

    @precondition(lambda self: any(each.reading for each in self.prompts.values()))
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        self.hand(self.choose([uid for uid, each in self.prompts.items() if each.reading], data))

    def hand(self, uid: int) -> None:
        prompt = self.prompts[uid]
        prompt.reading, prompt.stream = False, DecodeState(prompt.ticket, 0, PAGE * prompt.pages + 1, prompt.pages)
        self.decode.note(Handed(prompt.stream))

    @precondition(lambda self: self.prompts)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        """An abort, an error of what is read, or a prompt without answers: at any step."""
        self.forget(self.choose(list(self.prompts), data))

    def forget(self, uid: int) -> None:
        prompt = self.prompts.pop(uid)
        self.kv += prompt.held
        self.decode.note(Stopped(uid))

    @precondition(lambda self: len(self.prompts) > 3)
    @rule()
    def die(self) -> None:
        """All of the target's pages are free again, and it knows nothing any more; what has come begins anew."""
        waiting = [each.ticket for each in self.prompts.values()]
        self.decode, self.kv = Turn([Stage.DECODE], BUDGET, rests=False), KV
        self.prompts = {ticket.uid: Prompt(ticket, self.prompts[ticket.uid].pages) for ticket in waiting}

    @precondition(lambda self: self.shared or len(self.prompts) > 4)
    @rule(shared=st.booleans())
    def share(self, shared: bool) -> None:
        """Another worker comes to take pages of this KV cache, or leaves."""
        self.shared = shared

    @rule()
    def turn(self) -> None:
        self.now += 1.0
        plan = self.decode.take(Facts(self.now, Free(self.kv, KV), Around(shares_kv=self.shared))).plan
        self.forgo(plan)
        for uid, _, early in plan.pull:
            prompt = self.prompts[uid]
            taken = early or prompt.pages - prompt.held
            assert taken <= self.kv, "more is taken than is free"
            prompt.held, self.kv, prompt.reading = prompt.held + taken, self.kv - taken, not early
            self.decode.note(Pulling(uid, [], early))
        for uid, _ in plan.preempt:
            self.forget(uid)
        self.advance([key for key in plan.decode if key[0] in self.prompts])

    def forgo(self, plan: Plan) -> None:
        for uid in plan.forgo:
            prompt = self.prompts[uid]
            assert prompt.held
            assert not prompt.reading
            assert prompt.stream is None
            self.kv, prompt.held = self.kv + prompt.held, 0
            self.decode.note(Forgone(uid))

    def advance(self, keys: list[tuple[int, int]]) -> None:
        streams = []
        for uid, _ in keys:
            prompt = self.prompts[uid]
            assert prompt.stream
            grown = -(-prompt.stream.num_tokens // PAGE) - prompt.stream.pages
            assert grown <= self.kv, "a sequence grows into what is not free"
            self.kv, prompt.held, prompt.left = self.kv - grown, prompt.held + grown, prompt.left - 1
            if prompt.left:
                streams.append(Streamed((uid, 0), prompt.stream.num_tokens + 1, prompt.held))
        if keys:
            self.decode.note(Stepped([self.now, self.now + 0.1], [], keys, streams, beside=False))
        for uid, _ in keys:
            if not self.prompts[uid].left:
                self.kv += self.prompts.pop(uid).held

    @rule(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3))
    def show(self, sizes: list[int]) -> None:
        """A prompt comes whose visual tokens are encoded in another memory."""
        units = [UnitShape(PAGE * size, PAGE * sum(sizes[:number])) for number, size in enumerate(sizes)]
        ticket, room = self.ticket(), sum(sizes)
        self.prefill.note(Begin(ticket, Shape(PAGE * room + 4, room + 1, units, room_pages=room)))
        self.units[ticket.uid] = room, set(range(len(sizes))), False
        for unit in range(len(sizes)):
            self.prefill.note(UnitOffered(ticket.uid, unit))

    @precondition(lambda self: self.units)
    @rule(data=st.data())
    def hide(self, data: st.DataObject) -> None:
        self.leave(self.choose(list(self.units), data))

    def leave(self, uid: int) -> None:
        room, _, roomy = self.units.pop(uid)
        self.visual += room * roomy
        self.prefill.note(Left(uid))

    @rule()
    def pull_units(self) -> None:
        """Units arrive as soon as they are read, and their prompt leaves with the last one."""
        plan = self.prefill.take(Facts(self.now, Free(0, KV, self.visual))).plan
        for uid, units, _ in plan.pull:
            room, missing, roomy = self.units[uid]
            if not roomy:
                assert room <= self.visual, "more is taken than is free"
                self.visual -= room
            self.prefill.note(Pulling(uid, units))
            self.units[uid] = room, missing - set(units), True
            for unit in units:
                self.prefill.note(Encoded(uid, unit))
            if not self.units[uid][1]:
                self.leave(uid)

    @invariant()
    def books_balance(self) -> None:
        if hasattr(self, "prompts"):
            assert self.kv + sum(each.held for each in self.prompts.values()) == KV
            assert self.visual + sum(room * roomy for room, _, roomy in self.units.values()) == VISUAL

    def teardown(self) -> None:
        """All that is under way comes to its end."""
        if not hasattr(self, "prompts"):
            return
        for uid, each in list(self.prompts.items()):
            if not each.come:
                self.come(uid)
        for _ in range(100 + 20 * len(self.prompts) + len(self.units)):
            self.turn()
            self.pull_units()
            for uid in [uid for uid, each in self.prompts.items() if each.reading]:
                self.hand(uid)
        assert not self.prompts, "an answer waits for ever"
        assert not self.units, "a prompt waits for ever"
        assert (self.kv, self.visual) == (KV, VISUAL)


@pytest.mark.parametrize(
    "examples", [pytest.param(25, id="some"), pytest.param(1000, id="thousand", marks=pytest.mark.long)]
)
def test_pages_are_neither_lost_nor_held(examples: int) -> None:
    run_state_machine_as_test(Machine, settings=settings(max_examples=examples, stateful_step_count=40))  # type: ignore[no-untyped-call]
