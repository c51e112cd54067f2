"""How long one more request would wait is told by those that wait and how fast they end, and by nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.engine.requests.queue_time import QueueTime, retry_after


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@given(st.floats(0.01, 60), st.integers(1, 500), st.integers(9, 80))
def test_it_is_what_those_before_take_at_the_rate_of_late(each: float, waiting: int, ends: int) -> None:
    clock = Clock()
    queue = QueueTime(clock)
    for _ in range(ends):
        clock.now += each
        queue.ended(waiting)
    assert queue.wait(waiting) == pytest.approx(waiting * each)
    assert queue.wait(0) == 0


def test_it_is_not_known_before_some_have_ended_while_others_waited() -> None:
    clock = Clock()
    queue = QueueTime(clock)
    assert queue.wait(5) is None
    for _ in range(100):
        clock.now += 1
        queue.ended(waiting=0)
    assert queue.wait(5) is None


def test_a_quiet_night_does_not_count() -> None:
    clock = Clock()
    queue = QueueTime(clock)
    for _ in range(20):
        clock.now += 1
        queue.ended(waiting=3)
    queue.ended(waiting=0)
    clock.now += 10_000
    assert queue.wait(3) is None


def test_where_nothing_ends_any_more_it_grows() -> None:
    clock = Clock()
    queue = QueueTime(clock)
    for _ in range(20):
        clock.now += 1
        queue.ended(waiting=3)
    before = queue.wait(3)
    clock.now += 100
    assert (queue.wait(3) or 0) > 5 * (before or 0)


@pytest.mark.parametrize(("seconds", "told"), [(-5, 1), (0, 1), (0.2, 1), (7.2, 8), (1e9, 60)])
def test_who_is_refused_is_told_when_to_come_again(seconds: float, told: int) -> None:
    assert retry_after(seconds) == told
