"""Media that are larger than their buffers go through a window of them, and never stand still."""

import random
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.scheduling.rolling import Rolling
from unifiedserve.scheduling.vision import BufferPages, window_of

_sizes = st.builds(BufferPages, st.integers(1, 5), st.integers(1, 5))


def _sum(units: list[BufferPages]) -> BufferPages:
    return BufferPages(sum(unit.patch for unit in units), sum(unit.visual for unit in units))


@given(st.lists(_sizes, min_size=1, max_size=30), st.builds(BufferPages, st.integers(1, 40), st.integers(1, 40)))
def test_there_is_a_window_if_and_only_if_it_is_needed(units: list[BufferPages], buffers: BufferPages) -> None:
    total, window = _sum(units), window_of(units, buffers)
    fits = total.patch <= buffers.patch and total.visual <= buffers.visual
    one_too_large = any(unit.patch > buffers.patch or unit.visual > buffers.visual for unit in units)
    assert (window is None) == (fits or one_too_large)
    if window:
        assert window.patch <= buffers.patch
        assert window.visual <= buffers.visual
        assert all(unit.patch <= window.patch and unit.visual <= window.visual for unit in units)
        assert 1 <= window.half <= window.units


def test_half_of_a_buffer_is_left_to_others() -> None:
    window = window_of([BufferPages(2, 3)] * 100, BufferPages(40, 60))
    assert window is not None
    assert (window.patch, window.visual, window.units) == (20, 30, 10)


@given(
    st.lists(_sizes, min_size=1, max_size=30),
    st.builds(BufferPages, st.integers(5, 20), st.integers(5, 20)),
    st.sets(st.integers(0, 29)),
    st.randoms(use_true_random=False),
)
def test_all_units_get_their_turn_in_whatever_order_they_are_done(
    units: list[BufferPages], buffers: BufferPages, cached: set[int], order: random.Random
) -> None:
    """Patches come back when a unit is encoded; visual pages if at least half a window is to be prefilled in a row."""
    window = window_of(units, buffers)
    if window is None:
        return
    rolling = Rolling(window, enumerate(units))
    rolling.take(range(window.patch), range(window.visual))
    given_to: list[int] = []
    pages: dict[int, tuple[list[int], list[int]]] = {}
    decoding: list[int] = []
    encoded: set[int] = set(cached)
    unread = deque(range(len(units)))
    while unread:
        while True:
            rolling.recall(cached.__contains__)
            if (given := rolling.give()) is None:
                break
            pages[given[0]] = given[1]
            given_to.append(given[0])
        held = [page for patch, _ in pages.values() for page in patch], [page for _, v in pages.values() for page in v]
        assert len({*held[0], *rolling.patch}) == len(held[0]) + len(rolling.patch) == window.patch
        assert len({*held[1], *rolling.visual}) == len(held[1]) + len(rolling.visual) == window.visual
        decoding += rolling.begin()
        if decoding:
            unit = decoding.pop(order.randrange(len(decoding)))
            encoded.add(unit)
            patch, visual = pages[unit]
            pages[unit] = [], visual
            rolling.take_back(patch, [])
            if order.random() < 0.5:
                continue
        ready = next((i for i, unit in enumerate(unread) if unit not in encoded), len(unread))
        if ready >= window.half or ready == len(unread):
            for _ in range(ready):
                unit = unread.popleft()
                if unit not in cached:
                    rolling.take_back([], pages.pop(unit)[1])
        else:
            assert decoding, "nothing is decoded, encoded or prefilled"
    assert given_to == [unit for unit in range(len(units)) if unit not in cached]
    assert rolling.given_out
    assert rolling.returned
