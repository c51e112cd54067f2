"""A shelf: what is on it after any puts and lookups, and what goes first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.errors import RequestError
from unifiedserve.server.access.caller import Caller
from unifiedserve.server.shelf import Bounds, Shelf

ANNE, BEN = Caller("anne", keyed=True), Caller("ben", keyed=True)
BOUNDS = Bounds(number=4, size=100, seconds=10)
STEPS = st.tuples(st.integers(0, 100), st.sampled_from([ANNE, BEN]), st.floats(0, 6))


@given(st.lists(STEPS, max_size=40))
def test_bounds_hold_and_nothing_goes_unsaid(steps: list[tuple[int, Caller, float]]) -> None:
    now = 0.0
    sizes: dict[str, int] = {}
    owners: dict[str, Caller] = {}
    dropped: list[str] = []
    shelf = Shelf[str]("thing", "bring it again", BOUNDS, dropped.append, lambda: now)
    for number, (size, caller, pause) in enumerate(steps):
        now += pause
        id = f"thing-{number}"
        shelf.put(id, id, size, caller)
        sizes[id], owners[id] = size, caller
        there = [id for id in sizes if id in shelf]
        assert there[-1] == id
        assert len(there) <= BOUNDS.number
        assert sum(sizes[id] for id in there) <= BOUNDS.size
        assert sorted(there + dropped) == sorted(sizes)
    for id, owner in owners.items():
        with pytest.raises(RequestError, match="There is no thing"):
            shelf.get(id, BEN if owner is ANNE else ANNE)
        if id in shelf:
            assert shelf.get(id, owner) == id
        else:
            with pytest.raises(RequestError, match=r"was dropped, because .*: bring it again"):
                shelf.get(id, owner)


def test_what_is_used_stays() -> None:
    now = 0.0
    shelf = Shelf[str]("thing", "bring it again", BOUNDS, clock=lambda: now)
    shelf.put("a", "a", 1, ANNE)
    shelf.put("b", "b", 1, ANNE)
    for _ in range(5):
        now += 9
        assert shelf.get("a", ANNE) == "a"
    with pytest.raises(RequestError, match="nobody used it for 10 s"):
        shelf.get("b", ANNE)
