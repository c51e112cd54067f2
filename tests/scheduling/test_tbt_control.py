"""The time between tokens is held at its target, whatever the load: soon, without swinging, never at a standstill."""

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unifiedserve.scheduling.profile import largest_share
from unifiedserve.scheduling.tbt_control import BAND, LEAST_SHARE, WINDOW, TbtControl

TARGET = 0.1
fractions = st.floats(0.0, 1.0)


def run(control: TbtControl, alone: float, heavy: float, steps: int, noise: float = 0.0) -> Iterator[TbtControl]:
    """Let steps take `alone` and, beside heavy work, in proportion to its share `heavy` more; times of the target."""
    chance = random.Random(0)
    for _ in range(steps):
        gap = (alone + control.share * heavy) * (1 + noise * chance.uniform(-1, 1))
        control = control.after(gap * TARGET, TARGET)
        yield control


def gap(control: TbtControl, alone: float, heavy: float) -> float:
    return alone + control.share * heavy


@given(alone=st.floats(0.05, 0.8), heavy=st.floats(0.0, 20.0), before=st.floats(0.0, 20.0))
def test_after_any_change_of_load_few_gaps_are_above_the_target(alone: float, heavy: float, before: float) -> None:
    """Two tell of each cut, which halves what is too much unless that is less."""
    control = list(run(TbtControl(), alone, before, 2000))[-1]
    states = [control, *run(control, alone, heavy, 400)]
    within = [gap(state, alone, heavy) <= 1 or state.share == LEAST_SHARE for state in states]
    assert all(within[60:]), within.index(False, 60)


@settings(max_examples=25)
@given(alone=st.floats(0.05, 0.8), heavy=st.floats(0.0, 20.0), noise=st.floats(0.0, 0.04))
def test_it_comes_to_rest_near_the_target(alone: float, heavy: float, noise: float) -> None:
    states = list(run(TbtControl(), alone, heavy, 6000, noise))
    last = states[-2000:]
    shares = [state.share for state in last]
    assert max(shares) <= 1.25 * min(shares)
    lowest = min(gap(state, alone, heavy) for state in last)
    assert lowest > 0.8 * BAND or min(shares) == 1.0


@settings(max_examples=25)
@given(alone=st.floats(0.05, 0.85), heavy=st.floats(0.0, 20.0))
def test_without_noise_it_changes_nothing_once_it_is_right(alone: float, heavy: float) -> None:
    shares = [state.share for state in run(TbtControl(), alone, heavy, 8000)][-1000:]
    assert len(set(shares)) == 1


@settings(max_examples=200)
@given(gaps=st.lists(st.floats(0.0, 100.0), max_size=400))
def test_heavy_work_always_gets_something(gaps: list[float]) -> None:
    control = TbtControl()
    for each in gaps:
        control = control.after(each, TARGET)
        assert LEAST_SHARE <= control.share <= 1.0


@pytest.mark.parametrize("place", [0, 31, 99])
def test_one_long_gap_in_a_hundred_is_allowed(place: int) -> None:
    control = TbtControl(share=0.5)
    for number in range(WINDOW):
        control = control.after(5.0 if number == place else 0.95 * TARGET, TARGET)
    assert control.share == 0.5
    assert control.tbt == pytest.approx(0.95 * TARGET)


def test_what_was_cut_comes_back_when_there_is_room() -> None:
    control = TbtControl(share=LEAST_SHARE)
    shares = [LEAST_SHARE]
    for _ in range(2000):
        control = control.after(0.5 * TARGET, TARGET)
        shares.append(control.share)
    assert shares[-1] == 1.0
    assert all(after >= before for before, after in pairwise(shares))


def test_what_a_share_means_may_change_by_a_step() -> None:
    """From some share on all is twice as slow: it is tried again, but so seldom that the 99th percentile holds."""
    control, above = TbtControl(), 0
    for _ in range(20_000):
        gap = 0.7 if control.share < 0.6 else 1.4
        above += gap > 1
        control = control.after(gap * TARGET, TARGET)
    assert above < 0.01 * 20_000
    assert control.share > 0.25


@given(seconds=st.floats(0.001, 10.0), fixed=st.floats(0.0, 0.3))
def test_the_share_to_begin_with_is_found_in_a_few_steps(seconds: float, fixed: float) -> None:
    asked: list[float] = []

    def take(share: float) -> float:
        asked.append(share)
        return fixed + share * seconds

    share = largest_share(take, TARGET)
    assert len(asked) <= 6
    assert take(share) <= TARGET or share == LEAST_SHARE
    assert share == 1.0 or take(share + LEAST_SHARE) > TARGET
