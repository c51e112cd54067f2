"""What turns of simulated systems decide, whatever comes: told by what they recorded."""

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_systems import one_log_of, records_of
from systems import COSTS, KV, LAYOUTS, budgets, rules, works

from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import Stage
from unifiedserve.recording.records import Between, Looked, Made, MadeVision, Record, Taken
from unifiedserve.recording.replay import Replayed, replay
from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.simulation import Arrival, Rules, StageCosts
from unifiedserve.scheduling.state import EncodeWork
from unifiedserve.scheduling.turn import (
    AnswersOffered,
    Batched,
    Begin,
    Decoded,
    Encoded,
    Facts,
    Free,
    Handed,
    Left,
    Ready,
    Shape,
    Stepped,
    Stopped,
    Turn,
    UnitShape,
    Wrote,
)

systems = st.tuples(st.sampled_from(list(LAYOUTS)), works, budgets, st.sampled_from(COSTS), rules)
ALL_FREE = Free(KV, KV)
NEWCOMER, LARGEST = -1, Shape(1, KV, [UnitShape(1, 0)])


def decided(records: list[Record]) -> Iterator[Taken | Between]:
    return (record for record in records if isinstance(record, Taken | Between))


def abort(turn: Turn, uids: set[int], now: float) -> None:
    """End the batch of the encoder, if one is under way, as workers do; then drop all of these requests."""
    turn.note(Batched(0, now, now))
    for uid in uids:
        turn.note(Left(uid))
        turn.note(Stopped(uid))


def planned(turn: Turn, facts: Facts) -> set[int]:
    plan = turn.take(facts).plan
    return {work[0] for work in (*plan.encode, *plan.prefill, *plan.decode, *plan.preempt, *plan.pull)}


def made_of(records: list[Record]) -> tuple[Made, Turn]:
    made = records[0]
    assert isinstance(made, Made)
    return made, made.turn()


@settings(max_examples=50)
@given(systems)
def test_equal_facts_give_equal_decisions(system: tuple[object, ...]) -> None:
    for records in records_of(*system):
        assert replay(records) == Replayed(len(list(decided(records))))


@settings(max_examples=50)
@given(works, budgets, st.sampled_from(COSTS), rules)
def test_all_turns_of_one_process_are_on_one_record(
    work: list[Arrival], budget: Budget, costs: StageCosts, kept: Rules
) -> None:
    records = one_log_of("one", work, budget, costs, kept)
    assert {type(record) for record in records[:2]} == {Made, MadeVision}
    assert replay(records) == Replayed(sum(isinstance(record, Taken | Between | Looked) for record in records))


@settings(max_examples=50)
@given(systems)
def test_without_work_a_turn_waits(system: tuple[object, ...]) -> None:
    for records in records_of(*system):
        for turn in decided(records):
            if isinstance(turn, Taken) and not turn.decision.plan.has_work:
                assert turn.decision.plan.wait_until > turn.facts.now


@settings(max_examples=50)
@given(systems)
def test_nothing_is_planned_where_it_is_not_hosted(system: tuple[object, ...]) -> None:
    for records in records_of(*system):
        made, _ = made_of(records)
        for turn in decided(records):
            plan = turn.decision.plan
            planned = {Stage.ENCODE: plan.encode, Stage.PREFILL: plan.prefill, Stage.DECODE: plan.decode + plan.preempt}
            assert all(stage in made.hosted for stage, work in planned.items() if work)
            assert set(turn.decision.tells.working) <= set(made.hosted)


@settings(max_examples=50)
@given(systems)
def test_chunks_are_contiguous_and_within_reach(system: tuple[object, ...]) -> None:
    """A chunk begins where the last one of its prompt ended, and ends before what has not been encoded."""
    for records in records_of(*system):
        prompts: dict[int, tuple[Shape, set[int]]] = {}
        reached: dict[int, int] = {}
        for record in records:
            match record:
                case Begin(ticket, shape):
                    prompts[ticket.uid] = shape, {i for i, unit in enumerate(shape.units) if unit.encoded}
                    reached[ticket.uid] = 0
                case Encoded(uid, unit) | Wrote(uid, unit):
                    prompts[uid][1].add(unit)
                case Stepped():
                    reached |= {uid: stop for uid, _, stop in record.chunks}
                case Taken() | Between():
                    for uid, start, stop in record.decision.plan.prefill:
                        shape, encoded = prompts[uid]
                        lacking = [unit.position for i, unit in enumerate(shape.units) if i not in encoded]
                        assert reached[uid] == start < stop <= min([shape.tokens, *lacking])


@settings(max_examples=50)
@given(systems, st.data())
def test_after_an_abort_nothing_of_a_request_remains(system: tuple[object, ...], data: st.DataObject) -> None:
    """Whenever requests are aborted: they are in no later plan, and when all are gone a newcomer gets every page."""
    for made, *records in records_of(*system):
        assert isinstance(made, Made)
        _, turn = made_of([made])
        until = data.draw(st.integers(0, len(records)))
        uids, now = set[int](), 0.0
        for record in records[:until]:
            match record:
                case Taken(facts, _):
                    turn.take(facts)
                    now = facts.now
                case Between(facts, _):
                    turn.between(facts)
                case _:
                    turn.note(record)  # type: ignore[arg-type]
            if isinstance(record, Begin):
                uids.add(record.ticket.uid)
            elif isinstance(record, Handed):
                uids.add(record.state.key[0])
            elif isinstance(record, AnswersOffered):
                uids.add(record.answers.ticket.uid)
        gone = data.draw(st.sets(st.sampled_from(sorted(uids)))) if uids else set()
        abort(turn, gone, now)
        assert not gone & planned(turn, Facts(now + 1e4, ALL_FREE))
        abort(turn, uids, now)
        assert set(turn.counts().values()) == {(0, 0)}
        assert not turn.take(Facts(now + 2e4, ALL_FREE)).plan.has_work
        if Stage.ENCODE in made.hosted:
            turn.note(Begin(Ticket(NEWCOMER, now), LARGEST))
            turn.note(Ready(NEWCOMER, 0))
            turn.note(Decoded(NEWCOMER))
            assert turn.take(Facts(now + 3e4, ALL_FREE)).plan.encode == [EncodeWork(NEWCOMER, [0])]
