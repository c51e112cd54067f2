"""How many nodes a pool needs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.cluster.scaling import Limits, PoolLoad, Scaling


def test_as_many_as_the_load_takes() -> None:
    scaling = Scaling(Limits(1, 10), capacity=100.0)
    assert scaling.after(PoolLoad(0.0, 250.0), 1).nodes == 3


def test_targets_that_are_missed_want_one_more() -> None:
    scaling = Scaling(Limits(1, 10), capacity=100.0)
    assert scaling.after(PoolLoad(0.0, 50.0, first_tokens=100, late=2), 2).nodes == 3
    assert scaling.after(PoolLoad(11.0, 50.0, first_tokens=1000, late=5), 3).nodes == 3


def test_no_more_are_wanted_until_those_that_come_have_served_for_a_while() -> None:
    scaling, nodes, seen = Scaling(Limits(1, 10), capacity=100.0), 2, []
    for second in range(100):
        load = PoolLoad(float(second), 90.0, first_tokens=10, late=1, coming=(second < 60) * (nodes - 2))
        nodes = scaling.after(load, nodes).nodes
        seen.append(nodes)
    assert seen[:69] == [3] * 69
    assert seen[69] == 4


def test_late_first_tokens_that_more_nodes_cannot_mend_want_no_end_of_them() -> None:
    scaling, nodes = Scaling(Limits(1, 1000), capacity=100.0), 1
    for second in range(1000):
        nodes = scaling.after(PoolLoad(float(second), 100.0, first_tokens=10, late=5), nodes).nodes
    assert nodes == 4


def test_what_would_be_needed_beyond_the_limit_is_told() -> None:
    wanted = Scaling(Limits(0, 4), capacity=100.0).after(PoolLoad(0.0, 950.0), 4)
    assert (wanted.nodes, wanted.needed) == (4, 10)


def test_fewer_come_after_a_while_only() -> None:
    scaling = Scaling(Limits(0, 4), capacity=100.0)
    nodes, seen = 3, []
    for second in range(0, 400, 5):
        nodes = scaling.after(PoolLoad(float(second), 0.0), nodes).nodes
        seen.append(nodes)
    assert seen[:12] == [3] * 12
    assert sorted(set(seen), reverse=True) == [3, 2, 1, 0]
    assert scaling.after(PoolLoad(400.0, 0.0, pending=1.0), 0).nodes == 1


def test_a_load_at_the_edge_does_not_swing() -> None:
    scaling, nodes, seen = Scaling(Limits(1, 9), capacity=100.0), 2, set()
    for second in range(600):
        nodes = scaling.after(PoolLoad(float(second), 195.0 + 10 * (second % 2)), nodes).nodes
        seen.add(nodes)
    assert seen <= {2, 3}
    assert nodes == 3


@given(
    st.integers(0, 5),
    st.integers(0, 5),
    st.lists(st.tuples(st.floats(0, 1e4), st.integers(0, 9), st.floats(0, 1e5)), max_size=20),
)
def test_limits_hold(least: int, more: int, loads: list[tuple[float, int, float]]) -> None:
    scaling, nodes = Scaling(Limits(least, least + more), capacity=50.0), least
    for number, (tokens, late, pending) in enumerate(loads):
        wanted = scaling.after(PoolLoad(30.0 * number, tokens, 9, late, pending), nodes)
        nodes = wanted.nodes
        assert least <= nodes <= least + more


@pytest.mark.parametrize(("limits", "capacity"), [(Limits(1, 2), 0.0), (Limits(3, 2), 1.0), (Limits(-1, 2), 1.0)])
def test_what_cannot_be(limits: Limits, capacity: float) -> None:
    with pytest.raises(ValueError, match=r"nodes is nothing|tokens a second"):
        Scaling(limits, capacity)
