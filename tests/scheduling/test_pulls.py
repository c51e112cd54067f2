"""What is read from other memories, and when: whole or not at all, in the order of service, within what is free."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.messages.ticket import Ticket
from unifiedserve.scheduling import DecodeState, PrefillState, Pull, State, Unit, WaitingAnswers
from unifiedserve.scheduling.pulls import first_left, schedule_pulls


def prompt(uid: int, room_pages: int, offered: list[int], *, has_room: bool = False) -> PrefillState:
    units = [Unit(4, 4 * number) for number in range(4)]
    return PrefillState(Ticket(uid, uid), 20, 5, units, room_pages=room_pages, has_room=has_room, offered=list(offered))


def answers(uid: int, pages: int, visual: int = 0) -> WaitingAnswers:
    return WaitingAnswers(Ticket(uid, uid), pages, visual)


def state(
    prompts: list[PrefillState] | None = None,
    arriving: list[WaitingAnswers] | None = None,
    *,
    kv: int = 0,
    visual: int = 0,
    streams: int = 0,
    first: tuple[int, float] | None = None,
) -> State:
    decodes = [DecodeState(Ticket(100 + number, 0), 0, 10, 3) for number in range(streams)]
    offering = [prompt for prompt in prompts or [] if prompt.offered]
    return State(
        prompts or [],
        decodes,
        kv_free=kv,
        kv_total=100,
        first_elsewhere=first,
        visual_free=visual,
        offering=offering,
        arriving=arriving or [],
    )


def test_a_prompt_takes_room_for_all_of_its_units_when_the_first_is_offered() -> None:
    assert schedule_pulls(state([prompt(1, 8, [0])], visual=8)) == [Pull(1, [0])]
    assert schedule_pulls(state([prompt(1, 8, [0])], visual=7)) == []


def test_one_that_has_room_needs_no_more() -> None:
    assert schedule_pulls(state([prompt(1, 8, [2, 3], has_room=True)])) == [Pull(1, [2, 3])]


def test_nothing_is_read_of_what_is_not_offered() -> None:
    assert schedule_pulls(state([prompt(1, 8, [])], visual=100)) == []


def test_those_behind_one_without_room_wait_but_for_what_has_room() -> None:
    waiting = [prompt(1, 8, [0]), prompt(2, 2, [0]), prompt(3, 9, [1], has_room=True)]
    assert schedule_pulls(state(waiting, visual=7)) == [Pull(3, [1])]


def test_answers_are_read_in_turn_and_leave_a_page_to_each_stream() -> None:
    arriving = [answers(1, 4), answers(2, 4), answers(3, 1)]
    assert schedule_pulls(state(arriving=arriving, kv=9)) == [Pull(1), Pull(2), Pull(3)]
    assert schedule_pulls(state(arriving=arriving, kv=9, streams=2)) == [Pull(1)]
    assert first_left(state(arriving=arriving), [Pull(1)]) == (0, 2)
    assert first_left(state(arriving=arriving), [Pull(1), Pull(2), Pull(3)]) is None


def test_answers_that_keep_visual_tokens_need_pages_for_these_too() -> None:
    assert schedule_pulls(state(arriving=[answers(1, 4, 3)], kv=9, visual=3)) == [Pull(1)]
    assert schedule_pulls(state(arriving=[answers(1, 4, 3)], kv=9, visual=2)) == []
    beside = state([prompt(2, 5, [0])], [answers(1, 4, 3)], kv=9, visual=7)
    assert schedule_pulls(beside) == [Pull(2, [0])]


@pytest.mark.parametrize(("first", "read"), [((0, 0.5), []), ((0, 1.5), [Pull(1)]), ((1, 0.5), [Pull(1)])])
def test_who_comes_earlier_in_another_instance_has_the_pages_first(first: tuple[int, float], read: list[Pull]) -> None:
    assert schedule_pulls(state(arriving=[answers(1, 4)], kv=50, first=first)) == read


@given(
    st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=6),
    st.lists(st.integers(1, 9), max_size=6),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 5),
)
def test_no_more_is_taken_than_is_free(
    prompts: list[tuple[int, bool]], arriving: list[int], kv: int, visual: int, streams: int
) -> None:
    rooms = {uid: (pages, has_room) for uid, (pages, has_room) in enumerate(prompts)}
    waiting = [prompt(uid, pages, [0], has_room=has_room) for uid, (pages, has_room) in rooms.items()]
    offers = [answers(50 + number, pages) for number, pages in enumerate(arriving)]
    seen = state(waiting, offers, kv=kv, visual=visual, streams=streams)
    pulls = schedule_pulls(seen)
    units, read = [pull.uid for pull in pulls if pull.units], [pull.uid for pull in pulls if not pull.units]
    assert sum(rooms[uid][0] for uid in units if not rooms[uid][1]) <= visual
    assert sum(arriving[uid - 50] for uid in read) <= max(0, kv - streams)
    assert read == [offer.ticket.uid for offer in offers[: len(read)]]
    if len(read) < len(offers):
        assert first_left(seen, pulls) == offers[len(read)].place
