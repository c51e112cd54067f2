"""One turn decides by what has happened."""

from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import Stage
from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.state import Chunk, DecodeState, EncodeWork, Plan, Pull, WaitingAnswers
from unifiedserve.scheduling.turn import (
    AnswersOffered,
    Around,
    Batched,
    Begin,
    Decoded,
    Encoded,
    Facts,
    Free,
    Handed,
    Launched,
    Left,
    Pulling,
    Ready,
    Shape,
    Stepped,
    Stopped,
    Streamed,
    Took,
    Turn,
    UnitOffered,
    UnitShape,
    Wrote,
)

BUDGET = Budget(prefill_tokens=64, encode_tokens=64, max_running=4, kv_page_tokens=16)
LANGUAGE = [Stage.ENCODE, Stage.PREFILL, Stage.DECODE]
FREE = Free(kv=100, kv_total=100)
VIDEO = Shape(tokens=100, kv_pages=7, units=[UnitShape(40, 10), UnitShape(40, 50)])


def turn_of(*stages: Stage) -> Turn:
    return Turn(stages or LANGUAGE, BUDGET, rests=True)


def facts(now: float = 0.0, free: Free = FREE) -> Facts:
    return Facts(now, free)


def test_a_unit_is_encoded_when_its_patches_are_there_and_once() -> None:
    turn = turn_of()
    turn.note(Begin(Ticket(1, 0.0), VIDEO))
    assert not turn.take(facts()).plan.has_work
    turn.note(Ready(1, 0))
    plan = turn.take(facts()).plan
    assert plan.encode == [(1, [0])]
    turn.note(Ready(1, 1))
    under_way = turn.take(facts())
    assert under_way.plan.encode == []
    assert under_way.tells.working[Stage.ENCODE]
    turn.note(Wrote(1, 0))
    turn.note(Batched(40, 0.0, 0.1))
    assert turn.take(facts()).plan.encode == [(1, [1])]


def test_a_share_of_a_request_is_encoded_and_it_leaves_when_no_more_patches_come() -> None:
    turn = turn_of(Stage.ENCODE, Stage.PREFILL)
    turn.note(Begin(Ticket(1, 0.0), VIDEO._replace(prefills_here=False)))
    turn.note(Ready(1, 1))
    assert turn.take(facts()).plan == Plan(encode=[EncodeWork(1, [1])])
    turn.note(Decoded(1))
    assert turn.counts()[Stage.ENCODE] == (1, 0)
    turn.note(Wrote(1, 1))
    turn.note(Batched(40, 0.0, 0.1))
    assert set(turn.counts().values()) == {(0, 0)}


def test_nothing_of_a_request_is_left_where_others_encode_all_of_it() -> None:
    turn = turn_of(Stage.ENCODE)
    turn.note(Begin(Ticket(1, 0.0), VIDEO._replace(prefills_here=False)))
    assert turn.counts() == {Stage.ENCODE: (0, 1)}
    turn.note(Decoded(1))
    assert turn.counts() == {Stage.ENCODE: (0, 0)}


def test_pages_that_were_lost_to_another_instance_are_asked_for_again() -> None:
    """A chunk that was planned and did not run changes nothing."""
    turn = turn_of()
    turn.note(Begin(Ticket(1, 0.0), Shape(tokens=30, kv_pages=2)))
    planned = turn.take(facts()).plan.prefill
    assert planned == [Chunk(1, 0, 30)]
    assert turn.take(facts()).plan.prefill == planned


def test_who_waits_for_pages_is_told_and_nobody_later_is_let_in_elsewhere() -> None:
    first, second = turn_of(Stage.PREFILL), turn_of(Stage.PREFILL)
    first.note(Begin(Ticket(1, 1.0), Shape(tokens=100, kv_pages=9)))
    second.note(Begin(Ticket(2, 2.0), Shape(tokens=10, kv_pages=1)))
    second.note(Begin(Ticket(3, 0.5), Shape(tokens=10, kv_pages=1)))
    waits = first.take(facts(free=Free(kv=8, kv_total=20)))
    assert not waits.plan.has_work
    assert waits.tells.first == {Stage.PREFILL: (0, 1.0)}
    beside = Facts(0.0, Free(kv=8, kv_total=20), Around(first=waits.tells.first[Stage.PREFILL]))
    held = second.take(beside)
    assert [chunk.uid for chunk in held.plan.prefill] == [3]
    assert held.tells.first == {Stage.PREFILL: None}, "it does not lack pages"
    let_in = first.take(facts(free=Free(kv=9, kv_total=20)))
    assert let_in.plan.prefill == [Chunk(1, 0, 64)]
    assert let_in.tells.first == {Stage.PREFILL: None}


def test_a_sequence_rests_while_its_last_token_is_on_its_way() -> None:
    turn = turn_of(Stage.DECODE)
    turn.note(Handed(DecodeState(Ticket(1, 0.0), 0, num_tokens=20, pages=2)))
    assert turn.take(facts()).plan.decode == [(1, 0)]
    turn.note(Launched([Streamed((1, 0), 21, 2, rests=True)]))
    assert turn.take(facts()).plan.decode == []
    assert turn.counts() == {Stage.DECODE: (1, 0)}
    turn.note(Stepped([0.0, 0.1], [], [(1, 0)], [Streamed((1, 0), 20, 2)], beside=False))
    assert turn.take(facts(0.2)).plan.decode == [(1, 0)], "it was not decided, and is drawn again"
    turn.note(Stepped([0.2, 0.3], [], [(1, 0)], [], beside=False))
    assert turn.counts() == {Stage.DECODE: (0, 0)}


def test_nothing_of_a_request_remains_that_has_left() -> None:
    turn = turn_of()
    turn.note(Begin(Ticket(1, 0.0), VIDEO))
    turn.note(Ready(1, 0))
    turn.take(facts())
    turn.note(Wrote(1, 0))
    turn.note(Batched(40, 0.0, 0.1))
    turn.note(Begin(Ticket(2, 0.0), Shape(tokens=30, kv_pages=2)))
    turn.note(Took(2))
    turn.note(Stepped([0.1, 0.2], [Chunk(2, 0, 30)], [], [], beside=False))
    for answer in range(2):
        turn.note(Handed(DecodeState(Ticket(2, 0.0), answer, 31, 2)))
    turn.note(Stopped(2, 1))
    assert turn.take(facts(0.3)).plan.decode == [(2, 0)]
    for event in (Left(1), Left(1), Left(3), Stopped(2), Stopped(2), Stopped(3, 1)):
        turn.note(event)
    decision = turn.take(facts(0.4))
    assert not decision.plan.has_work
    assert set(turn.counts().values()) == {(0, 0)}
    turn.note(Begin(Ticket(4, 0.0), VIDEO))
    turn.note(Ready(4, 0))
    assert turn.take(facts(0.5)).plan.encode == [(4, [0])]


def test_a_pass_waits_a_moment_for_a_unit_that_is_being_read() -> None:
    """A pass over another prompt that began now would hold it up for longer."""
    turn = turn_of(Stage.PREFILL)
    turn.note(Begin(Ticket(1, 0.0), VIDEO._replace(room_pages=6)))
    turn.note(Begin(Ticket(2, 1.0), Shape(tokens=30, kv_pages=2)))
    turn.note(UnitOffered(1, 0))
    pulls = turn.take(facts(5.0, Free(kv=100, kv_total=100, visual=6))).plan
    assert pulls.pull == [Pull(1, [0])]
    assert not pulls.has_work
    assert 5.0 < pulls.wait_until < 5.1
    turn.note(Pulling(1, [0]))
    assert [chunk.uid for chunk in turn.take(facts(5.0)).plan.prefill] == [2], "one that takes longer is not waited for"
    turn.note(Encoded(1, 0))
    assert turn.take(facts(5.01)).plan.prefill[0].uid == 1


def test_a_unit_for_which_there_is_no_room_holds_up_nobody() -> None:
    turn = turn_of(Stage.PREFILL)
    turn.note(Begin(Ticket(1, 0.0), VIDEO._replace(room_pages=6)))
    turn.note(Begin(Ticket(2, 1.0), Shape(tokens=30, kv_pages=2)))
    turn.note(UnitOffered(1, 0))
    plan = turn.take(facts(5.0, Free(kv=100, kv_total=100, visual=5))).plan
    assert plan.pull == []
    assert [chunk.uid for chunk in plan.prefill] == [2]


def test_sequences_do_not_wait_for_what_is_read_beside_them() -> None:
    turn = turn_of(Stage.DECODE)
    turn.note(Handed(DecodeState(Ticket(1, 0.0), 0, num_tokens=20, pages=2)))
    turn.note(AnswersOffered(WaitingAnswers(Ticket(2, 0.0), 3)))
    plan = turn.take(facts()).plan
    assert plan.pull == [Pull(2)]
    assert plan.decode == [(1, 0)]
    assert turn.counts() == {Stage.DECODE: (1, 1)}
    turn.note(Pulling(2, []))
    assert turn.take(facts()).plan.pull == []
    turn.note(Handed(DecodeState(Ticket(2, 0.0), 0, num_tokens=20, pages=3)))
    assert turn.take(facts()).plan.decode == [(1, 0), (2, 0)]
