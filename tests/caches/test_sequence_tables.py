"""Page tables in shared memory are, at any moment, those that their writer has told of and not taken back."""

import uuid
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc_buffers import Arena
from unifiedserve.memory.sequence_tables import Row, SequenceTables

ROWS, PAGES = 3, 5
KEYS = [(uid, index) for uid in (1, 2**32 - 1) for index in (0, 1)]
EVENTS = st.lists(st.tuples(st.sampled_from(["enter", "extend", "leave"]), st.sampled_from(KEYS), st.integers(0, 3)))


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    arena = SequenceTables.create(f"test-tables-{uuid.uuid4().hex[:12]}", ["a", "b"], ROWS, PAGES)
    yield arena
    arena.close()
    arena.unlink()


@given(events=EVENTS)
def test_a_successor_finds_what_was_there(arena: Arena, events: list[tuple[str, tuple[int, int], int]]) -> None:
    tables = SequenceTables(arena, ["a", "b"], ROWS, PAGES)
    table, expected, page = tables.of("b"), dict[tuple[int, int], Row](), 0
    for event, key, count in events:
        pages = list(range(page, page + count))
        page += count
        if event == "enter" and key not in expected:
            if len(expected) < ROWS:
                expected[key] = Row(-count, pages)
            table.enter(key, -count, pages)
        elif event == "extend":
            table.extend(key, pages)
            if key in expected:
                before = expected.pop(key)
                if len(before.pages) + count <= PAGES:
                    expected[key] = Row(before.position_offset, before.pages + pages)
        elif event == "leave":
            table.leave(key)
            expected.pop(key, None)
    assert tables.of("a").take() == {}
    assert SequenceTables(arena, ["a", "b"], ROWS, PAGES).of("b").take() == expected
    assert tables.of("b").take() == {}
