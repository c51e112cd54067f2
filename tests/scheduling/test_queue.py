"""Who goes first, in each order of service: what is owed, what is short, and that nobody waits for ever."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.config import Order
from unifiedserve.messages.ticket import Ticket
from unifiedserve.scheduling import PrefillState, Queue, Unit

ORDERS: list[Order] = ["fcfs", "slack", "shortest"]
PATIENCE, AGEING = 2, 8  # as promised by the queue: targets, and times its own work

moments = st.floats(0, 1000)
works = st.floats(0.01, 100)


def request(
    uid: int, arrival: float, work: float = 1.0, target: float = 10.0, priority: int = 0, units: int = 0
) -> PrefillState:
    made = [Unit(10, 10 * i, ready=True) for i in range(units)]
    return PrefillState(Ticket(uid, arrival, priority, arrival + target, work), 10 * units + 100, 9, made)


def served(order: Order, requests: list[PrefillState], now: float = 0.0) -> list[int]:
    queue: Queue[PrefillState] = Queue(order)
    for one in requests:
        queue.add(one)
    return [one.ticket.uid for one in queue.in_turn(now)]


@pytest.mark.parametrize("order", ORDERS)
@given(st.lists(st.tuples(moments, works, works, st.integers(-2, 2)), max_size=12), moments)
def test_priority_classes_go_first(order: Order, given: list[tuple[float, float, float, int]], now: float) -> None:
    requests = [request(uid, *fields) for uid, fields in enumerate(given)]
    turns = served(order, requests, now)
    assert sorted(turns) == list(range(len(given)))
    assert [given[uid][3] for uid in turns] == sorted(fields[3] for fields in given)


@pytest.mark.parametrize("order", ORDERS)
@given(st.lists(st.integers(0, 1000), max_size=12), works, works)
def test_equals_are_served_as_they_came(order: Order, arrivals: list[int], work: float, slack: float) -> None:
    """While all of them can meet their targets, or none."""
    requests = [request(uid, arrival, work, work + slack) for uid, arrival in enumerate(arrivals)]
    for now in (0.0, 3000.0):
        turns = served(order, requests, now)
        assert all((arrivals[a], a) < (arrivals[b], b) for a, b in pairwise(turns))


def test_first_come_first_served_lets_go_on_what_has_begun() -> None:
    begun = request(2, 5.0)
    begun.admit()
    assert served("fcfs", [request(1, 1.0, work=9), begun, request(3, 0.5)]) == [2, 3, 1]


def test_least_slack_first() -> None:
    """A text that came last goes before a video that has time, and after one that has not."""
    text = request(1, arrival=9.0, work=0.2, target=1.0)
    easy, tight = request(2, 0.0, work=30.0, target=100.0), request(3, 0.0, work=30.0, target=39.6)
    assert served("slack", [easy, tight, text], now=9.0) == [3, 1, 2]


def test_who_cannot_meet_the_target_any_more_goes_behind_who_can() -> None:
    late, other = request(1, 0.0, work=1.0, target=4.0), request(2, 1.0, work=1.0, target=4.0)
    assert served("slack", [late, other], now=2.9) == [1, 2]
    assert served("slack", [late, other], now=3.5) == [2, 1]
    assert served("slack", [late, other], now=4.5) == [1, 2], "both are late"


def test_alike_requests_do_not_take_turns() -> None:
    """Two videos of nearly the same work: the one that was decoded first and has begun is brought to its end."""
    begun, other = request(1, 0.1, work=8.0, target=40.0), request(2, 0.0, work=7.9, target=39.6)
    assert served("slack", [begun, other], now=0.0) == [2, 1]
    begun.admit()
    begun.prefill(10)
    assert served("slack", [begun, other], now=1.0) == [1, 2]
    text = request(3, 2.0, work=0.2, target=1.0)
    assert served("slack", [begun, other, text], now=2.0) == [3, 1, 2]


def test_what_is_done_counts_for_the_slack() -> None:
    """Half of a video is prefilled: it is on time where one that has not begun is late."""
    begun, waiting = request(1, 0.0, work=8.0, target=10.0), request(2, 0.1, work=8.0, target=10.0)
    begun.admit()
    begun.prefill(50)
    assert served("slack", [waiting, begun], now=5.0) == [1, 2]
    assert served("slack", [waiting, begun], now=1.0) == [1, 2]


def test_least_work_left_first() -> None:
    long, half, short = request(1, 0.0, work=10.0), request(2, 0.0, work=10.0), request(3, 0.0, work=1.0)
    half.prefill(50)
    assert served("shortest", [long, half, short]) == [3, 2, 1]
    seen = request(4, 0.0, work=10.0, units=10)
    for unit in range(10):
        seen.encode_unit(unit)
    assert served("shortest", [request(5, 0.0, work=10.0, units=10), seen]) == [4, 5]


@given(moments, works, works, works, works, st.floats(0, 1e4), st.floats(0, 1e4))
def test_nobody_waits_for_ever(
    arrival: float, work: float, target: float, other_work: float, other_target: float, after: float, later: float
) -> None:
    """Who comes after a moment that is fixed by the first one's target or work is served after it, at any time."""
    bounds = {"slack": PATIENCE * target + 1e-6, "shortest": AGEING * work + 1e-6}
    for order, bound in bounds.items():
        other_arrival = arrival + bound + after
        first = request(1, arrival, work, target)
        other = request(2, other_arrival, min(other_work, other_target), other_target)
        assert served(order, [first, other], other_arrival + later) == [1, 2]  # type: ignore[arg-type]


def test_progress_is_seen_at_the_next_look() -> None:
    queue: Queue[PrefillState] = Queue("shortest")
    first, second = request(1, 0.0, work=5.0), request(2, 0.0, work=4.0)
    queue.add(first)
    queue.add(second)
    assert [one.ticket.uid for one in queue.in_turn(0.0)] == [2, 1]
    first.prefill(90)
    assert [one.ticket.uid for one in queue.in_turn(0.0)] == [1, 2]
    queue.remove(first)
    assert [one.ticket.uid for one in queue.in_turn(0.0)] == [2]
    with pytest.raises(ValueError, match="request 1 is not in the queue"):
        queue.remove(first)
