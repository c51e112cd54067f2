"""Vision lets requests in by turn and by pages, and tells how turns change."""

from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import FIRST_MEMORY
from unifiedserve.scheduling.turn.vision import MediaCame, MediaLeft, MediaTook, VisionFacts, VisionTurn
from unifiedserve.scheduling.vision import BufferPages


def free(patch: int, visual: int) -> dict[str, BufferPages]:
    return {FIRST_MEMORY: BufferPages(patch, visual)}


def test_who_comes_first_waits_for_pages_and_holds_the_others_back() -> None:
    turn = VisionTurn("fcfs")
    turn.note(MediaCame(Ticket(2, 2.0), 1, 1))
    turn.note(MediaCame(Ticket(1, 1.0), 5, 2))
    decision = turn.take(VisionFacts(3.0, free(4, 9)))
    assert (decision.admit, decision.first) == ([], {FIRST_MEMORY: (0, 1.0)})
    assert turn.counts() == (0, 2)
    decision = turn.take(VisionFacts(3.0, free(6, 3)))
    assert (decision.admit, decision.turns, decision.first) == ([1, 2], {1: 1.0, 2: 2.0}, {FIRST_MEMORY: None})


def test_pages_that_were_lost_to_another_instance_are_asked_for_again() -> None:
    turn = VisionTurn("fcfs")
    turn.note(MediaCame(Ticket(1, 1.0), 5, 2))
    for _ in range(2):
        decision = turn.take(VisionFacts(3.0, free(5, 2)))
        assert (decision.admit, decision.turns) == ([1], {1: 1.0})
    turn.note(MediaTook(1))
    assert turn.take(VisionFacts(3.0, free(5, 2))).admit == []
    assert turn.counts() == (1, 0)


def test_nobody_is_let_in_before_one_that_waits_elsewhere() -> None:
    turn = VisionTurn("fcfs")
    turn.note(MediaCame(Ticket(1, 1.0), 1, 1))
    turn.note(MediaCame(Ticket(2, 2.0), 1, 1))
    assert turn.take(VisionFacts(3.0, free(9, 9), {FIRST_MEMORY: (0, 1.5)})).admit == [1]
    assert turn.take(VisionFacts(3.0, free(9, 9), {FIRST_MEMORY: (-1, 5.0)})).admit == []


def test_who_waits_for_one_memory_holds_nobody_back_from_another() -> None:
    """Neither here nor elsewhere."""
    turn = VisionTurn("fcfs")
    for uid, memory in ((1, "mem0"), (2, "mem0"), (3, "mem1")):
        turn.note(MediaCame(Ticket(uid, float(uid)), 5, 2, memory))
    both = {"mem0": BufferPages(9, 9), "mem1": BufferPages(4, 9)}
    decision = turn.take(VisionFacts(4.0, both))
    assert (decision.admit, decision.first) == ([1], {"mem0": (0, 2.0), "mem1": (0, 3.0)})
    decision = turn.take(VisionFacts(4.0, both | {"mem1": BufferPages(5, 2)}, {"mem0": (0, 0.5)}))
    assert (decision.admit, decision.first) == ([3], {"mem0": (0, 1.0), "mem1": None})


def test_a_turn_that_changes_with_time_is_told_when_it_does() -> None:
    """By least slack whoever cannot meet the target any more goes behind those who can."""
    turn = VisionTurn("slack")
    turn.note(MediaCame(Ticket(1, 1.0, due=10.0, work=2.0), 1, 1))
    decision = turn.take(VisionFacts(3.0, free(9, 9)))
    assert (decision.admit, decision.turns) == ([1], {1: 8.0})
    turn.note(MediaTook(1))
    again = turn.take(VisionFacts(3.0, free(8, 8)))
    assert (again.turns, again.wait_until) == ({}, 8.0)
    assert turn.take(VisionFacts(8.0, free(8, 8))).turns == {1: 1.0 + 2 * 9.0}
    turn.note(MediaLeft(1))
    assert turn.take(VisionFacts(9.0, free(9, 9))).wait_until == float("inf")
