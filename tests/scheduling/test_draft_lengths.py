"""Drafts are as long as pays, and a text that they do not fit has next to none."""

from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.scheduling.speculation import ROW_COST, Acceptance

STEPS = 400


def after(outcomes: list[bool], acceptance: Acceptance | None = None) -> Acceptance:
    """What is known after drafts of one token each, right or not."""
    acceptance = acceptance or Acceptance()
    for right in outcomes:
        acceptance = acceptance.after(1, int(right))
    return acceptance


def test_a_text_that_drafts_never_fit_costs_less_than_two_steps_of_four_hundred() -> None:
    acceptance, rows = Acceptance(), 0
    for _ in range(STEPS):
        drafted = acceptance.length
        rows += drafted
        acceptance = acceptance.after(drafted, 0)
    assert 0 < rows * ROW_COST < 2


def test_drafts_come_back_when_a_text_begins_to_repeat_itself() -> None:
    acceptance, came = after([False] * STEPS), 0
    assert acceptance.length == 0
    for _ in range(30):
        drafted = acceptance.length
        came += 1 + drafted
        acceptance = acceptance.after(drafted, drafted)
    assert acceptance.length >= 7
    assert came > 60


@given(st.lists(st.tuples(st.integers(0, 31), st.integers(0, 31)), max_size=200))
def test_lengths_grow_with_what_is_right_whatever_came_before(drafts: list[tuple[int, int]]) -> None:
    acceptance = Acceptance()
    for drafted, accepted in drafts:
        acceptance = acceptance.after(drafted, min(drafted, accepted))
    assert acceptance.length >= 0
    worse, better = acceptance.after(4, 1), acceptance.after(4, 3)
    assert worse.length <= better.length
    assert after([True] * 1000, acceptance).length > 31
    assert after([False] * 1000, acceptance).length == 0
