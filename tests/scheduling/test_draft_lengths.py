"""Drafts are as long as pays, and a text that they do not fit has next to none."""

from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.scheduling.speculation import Acceptance, row_cost

STEPS = 400

ROW_COST = row_cost(16)


def after(outcomes: list[bool], acceptance: Acceptance | None = None) -> Acceptance:
    """What is known after drafts of one token each, right or not."""
    acceptance = acceptance or Acceptance()
    for right in outcomes:
        acceptance = acceptance.after(1, int(right))
    return acceptance


def test_a_text_that_drafts_never_fit_costs_less_than_two_steps_of_four_hundred() -> None:
    acceptance, rows = Acceptance(), 0
    for _ in range(STEPS):
        drafted = acceptance.length(ROW_COST)
        rows += drafted
        acceptance = acceptance.after(drafted, 0)
    assert 0 < rows * ROW_COST < 2


def test_drafts_come_back_when_a_text_begins_to_repeat_itself() -> None:
    acceptance, came = after([False] * STEPS), 0
    assert acceptance.length(ROW_COST) == 0
    for _ in range(30):
        drafted = acceptance.length(ROW_COST)
        came += 1 + drafted
        acceptance = acceptance.after(drafted, drafted)
    assert acceptance.length(ROW_COST) >= 7
    assert came > 60


@given(st.lists(st.tuples(st.integers(0, 31), st.integers(0, 31)), max_size=200))
def test_lengths_grow_with_what_is_right_whatever_came_before(drafts: list[tuple[int, int]]) -> None:
    acceptance = Acceptance()
    for drafted, accepted in drafts:
        acceptance = acceptance.after(drafted, min(drafted, accepted))
    assert acceptance.length(ROW_COST) >= 0
    worse, better = acceptance.after(4, 1), acceptance.after(4, 3)
    assert worse.length(ROW_COST) <= better.length(ROW_COST)
    assert after([True] * 1000, acceptance).length(ROW_COST) > 31
    assert after([False] * 1000, acceptance).length(ROW_COST) == 0


def test_a_row_costs_more_where_weights_are_quick_to_read() -> None:
    sure = after([True] * 6)
    assert row_cost(5) > row_cost(8) > row_cost(16) > row_cost(32)
    assert sure.length(row_cost(5)) < sure.length(row_cost(16))
