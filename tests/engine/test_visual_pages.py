"""Rows of units that come in any order are found where they lie, and their pages go as soon as nobody needs them."""

import uuid
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipc_buffers import PagePool
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.worker.language.visual_pages import VisualPages

WIDTH, PAGE_ROWS = 3, 4


@pytest.fixture
def buffer() -> Iterator[RowBuffer]:
    pool = PagePool.create(f"test-visual-{uuid.uuid4().hex[:12]}", 64, PAGE_ROWS * WIDTH * 4)
    yield RowBuffer(pool, WIDTH, torch.float32)
    pool.close()
    pool.unlink()


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(units=st.lists(st.integers(1, 14), min_size=1, max_size=6), data=st.data())
def test_rows_are_found_and_pages_are_given_back(buffer: RowBuffer, units: list[int], data: st.DataObject) -> None:
    total = sum(units)
    order = data.draw(st.permutations(range(len(units))))
    bounds = st.tuples(st.integers(0, total), st.integers(0, total)).map(sorted).filter(lambda pair: pair[0] < pair[1])
    parts = [range(first, last) for first, last in data.draw(st.lists(bounds, min_size=1, max_size=3))]
    rows = torch.arange(total * WIDTH, dtype=torch.float32).view(total, WIDTH)
    visual = VisualPages(buffer)
    for unit in order:
        first = sum(units[:unit])
        taken = buffer.take([units[unit]], 1, 0)
        assert taken is not None
        (pages,) = taken
        buffer.write(rows[first : first + units[unit]], [(pages, units[unit])])
        visual.add(pages, range(first, first + units[unit]))
    expected = torch.cat([rows[part.start : part.stop] for part in parts])
    assert torch.equal(buffer.rows[visual.find(parts)], expected)
    assert torch.equal(torch.cat([visual.read(part) for part in parts]), expected)
    visual.release(parts)
    assert torch.equal(buffer.rows[visual.find(parts)], expected)
    needed = {place.page for place in visual.slices(parts)}
    assert buffer.pool.used_pages() == len(needed)
    visual.release()
    assert buffer.pool.used_pages() == 0
