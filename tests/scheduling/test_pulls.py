"""What is read from other memories, and when: whole or not at all, in the order of service, within what is free."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.messages.ticket import Ticket
from unifiedserve.scheduling import DecodeState, EarlyPages, PrefillState, Pull, State, Unit, WaitingAnswers
from unifiedserve.scheduling.early_reads import schedule_forgone
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
    early: list[EarlyPages] | None = None,
    shares_kv: bool = False,
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
        early=early or [],
        shares_kv=shares_kv,
    )


def early(uid: int, offered: int, held: int = 0) -> EarlyPages:
    return EarlyPages(Ticket(uid, uid), offered, held)


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


def test_full_pages_of_prompts_are_read_early_while_a_quarter_of_the_cache_is_left() -> None:
    offered = [early(1, 4), early(2, 0, held=9), early(3, 2)]
    assert schedule_pulls(state(early=offered, kv=31)) == [Pull(1, early=4), Pull(3, early=2)]
    assert schedule_pulls(state(early=offered, kv=31, streams=1)) == [Pull(1, early=4)]
    assert schedule_pulls(state(early=offered, kv=28)) == []


def test_nothing_is_read_early_while_answers_wait_or_others_take_pages() -> None:
    assert schedule_pulls(state(arriving=[answers(1, 40)], early=[early(2, 4)], kv=39)) == []
    assert schedule_pulls(state(arriving=[answers(1, 40)], early=[early(2, 4)], kv=69)) == [Pull(1), Pull(2, early=4)]
    assert schedule_pulls(state(arriving=[answers(1, 40)], early=[early(2, 4)], kv=68)) == [Pull(1)]
    assert schedule_pulls(state(early=[early(2, 4)], kv=90, shares_kv=True)) == []


def test_what_was_read_early_is_given_back_to_answers_before_and_to_streams() -> None:
    """By the last in turn first, and not if that would not be enough."""
    held = [early(1, 0, held=9), early(3, 5, held=4), early(4, 0, held=3)]
    for lacking, forgone in ((0, []), (1, [4]), (3, [4]), (4, [4, 3]), (7, [4, 3]), (8, [])):
        assert schedule_forgone(state(arriving=[answers(2, 10 + lacking)], early=held, kv=10)) == forgone
    for free, forgone in ((3, []), (2, [4]), (0, [4]), (-1, [4, 3])):
        assert schedule_forgone(state(early=held, kv=free, streams=3)) == forgone
    assert schedule_forgone(state(early=held, kv=90, shares_kv=True)) == [1, 3, 4]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=6),
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), max_size=4),
    st.randoms(use_true_random=False),
    st.integers(0, 100),
    st.integers(0, 5),
)
def test_early_pages_keep_nobody_waiting(
    prompts: list[tuple[int, int]],
    waiting: list[tuple[int, int]],
    choose: random.Random,
    kv: int,
    streams: int,
) -> None:
    """Answers that come first have pages when all that is forgone is free, if there are any; giving back has an end."""
    order = choose.sample(range(len(prompts) + len(waiting)), len(prompts) + len(waiting))
    offers = sorted((early(uid, *pages) for uid, pages in zip(order, prompts, strict=False)), key=in_turn)
    come = sorted(
        (
            answers(uid, need)._replace(held=held)
            for uid, (need, held) in zip(order[len(prompts) :], waiting, strict=True)
        ),
        key=in_turn,
    )
    seen = state(arriving=come, early=offers, kv=kv, streams=streams)
    later = sum(each.held for each in (*offers, *come) if come and each.ticket.turn > come[0].ticket.turn)
    served = bool(come) and streams <= kv and come[0].kv_pages <= kv - streams + later
    for _ in range(len(order) + 1):
        if not (forgone := schedule_forgone(seen)):
            break
        give_back(seen, forgone)
    else:
        pytest.fail("there is always something to be given back")
    pulls = schedule_pulls(seen)
    assert len(pulls) == len({pull.uid for pull in pulls})
    assert not served or Pull(come[0].ticket.uid) in pulls
    assert sum(pull.early for pull in pulls) <= max(0, seen.kv_free - streams - 25)


def in_turn(pages: EarlyPages | WaitingAnswers) -> tuple[int, float, int]:
    return pages.ticket.turn


def give_back(seen: State, uids: list[int]) -> None:
    """Have requests give back what they have read early."""
    both = [*seen.early, *seen.arriving]
    seen.kv_free += sum(each.held for each in both if each.ticket.uid in uids)
    seen.early = [
        each._replace(offered=each.offered + each.held, held=0) if each.ticket.uid in uids else each
        for each in seen.early
    ]
    seen.arriving = [
        each._replace(kv_pages=each.kv_pages + each.held, held=0) if each.ticket.uid in uids else each
        for each in seen.arriving
    ]


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
