from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ipc_processes import MakePool

from ipc_buffers import PagedBuffer, PageError, PageIndex, PagePool

ROWS_PER_PAGE = 5
ROW_BYTES = 12
PAGE_BYTES = 64


def lay_out(pool: PagePool, lengths: list[list[int]]) -> PageIndex:
    """Allocates a page for each entry, with that many rows; request numbers count from 1."""
    batch = []
    for request, rows in enumerate(lengths, start=1):
        pages = pool.allocate(len(rows), request)
        assert pages is not None
        batch.append(list(zip(pages.tolist(), rows, strict=True)))
    return PageIndex.build(batch)


def numbered_rows(count: int) -> np.ndarray:
    return np.arange(count * ROW_BYTES, dtype=np.uint32).astype(np.uint8).reshape(count, ROW_BYTES)


def test_index_arrays() -> None:
    index = PageIndex.build([[(9, 5), (4, 2)], [], [(7, 1)]])
    assert index.pv_indptr.tolist() == [0, 7, 7, 8]
    assert index.pv_page_indptr.tolist() == [0, 2, 2, 3]
    assert index.pv_page_indices.tolist() == [9, 4, 7]
    assert index.pv_cu_page_len.tolist() == [0, 5, 7, 8]
    assert all(array.dtype == np.int32 for array in vars(index).values())
    assert PageIndex.build([]).pv_indptr.tolist() == [0]


@pytest.mark.parametrize("entry", [(3, 0), (3, -1), (1 << 31, 1), (1, 1 << 31)])
def test_index_of_impossible_pages(entry: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="page"):
        PageIndex.build([[entry]])


def test_sizes(make_pool: MakePool) -> None:
    pool = make_pool(4, PAGE_BYTES)
    buffer = PagedBuffer(pool, ROW_BYTES)
    assert (buffer.rows_per_page, buffer.row_bytes) == (ROWS_PER_PAGE, ROW_BYTES)
    assert [buffer.pages_for(rows) for rows in (0, 1, 5, 6, 10)] == [0, 1, 1, 2, 2]
    for row_bytes in (0, -1, PAGE_BYTES + 1):
        with pytest.raises(ValueError, match="rows of"):
            PagedBuffer(pool, row_bytes)
    with pytest.raises(ValueError, match="-1 rows"):
        buffer.pages_for(-1)


def test_rows_of_any_dtype(make_pool: MakePool) -> None:
    pool = make_pool(4, PAGE_BYTES)
    buffer = PagedBuffer(pool, ROW_BYTES)
    rows = np.arange(21, dtype=np.float32).reshape(7, 3)
    index = lay_out(pool, [[5, 2]])
    buffer.write(index, rows)
    out = np.empty((4, 3), np.float32)
    assert buffer.read(index, 0, 3, 7, out) is out
    np.testing.assert_array_equal(out, rows[3:7])
    assert buffer.read(index, 0, 3, 7).dtype == np.uint8


def test_rows_lie_where_the_index_says(make_pool: MakePool) -> None:
    pool = make_pool(4, PAGE_BYTES)
    index = lay_out(pool, [[5, 2]])
    rows = numbered_rows(7)
    PagedBuffer(pool, ROW_BYTES).write(index, rows)
    pages = np.frombuffer(pool.data(), np.uint8).reshape(4, PAGE_BYTES)
    first, second = index.pv_page_indices
    assert pages[first, :60].tobytes() == rows[:5].tobytes()
    assert pages[second, :24].tobytes() == rows[5:].tobytes()


layouts = st.lists(st.lists(st.integers(1, ROWS_PER_PAGE), max_size=6), min_size=1, max_size=5)


@given(lengths=layouts, data=st.data())
def test_what_is_written_is_read_in_any_chunks_and_each_page_is_released_once(
    lengths: list[list[int]], data: st.DataObject
) -> None:
    pool = PagePool.create(f"test-{os.getpid()}-paged", 40, PAGE_BYTES)
    try:
        buffer = PagedBuffer(pool, ROW_BYTES)
        index = lay_out(pool, lengths)
        rows = numbered_rows(sum(map(sum, lengths)))
        buffer.write(index, rows)
        for request, pages in enumerate(lengths):
            total = sum(pages)
            mine = rows[sum(map(sum, lengths[:request])) :][:total]
            cuts = data.draw(st.lists(st.integers(0, total), max_size=4).map(sorted))
            for start, stop in zip([0, *cuts], [*cuts, total], strict=True):
                np.testing.assert_array_equal(buffer.read(index, request, start, stop), mine[start:stop])
                stay = [sum(pages[: i + 1]) > stop for i in range(len(pages))]
                buffer.consume(index, request, start, stop)
                numbers = index.pv_page_indices[index.pv_page_indptr[request] :][: len(pages)]
                assert [pool.references(page) == 1 for page in numbers] == stay
    finally:
        pool.unlink()


def test_a_chunk_is_read_after_the_pages_before_it_were_consumed(make_pool: MakePool) -> None:
    pool = make_pool(4, PAGE_BYTES)
    buffer = PagedBuffer(pool, ROW_BYTES)
    index = lay_out(pool, [[5, 5, 3]])
    rows = numbered_rows(13)
    buffer.write(index, rows)
    assert buffer.consume(index, 0, 0, 7) == 1
    np.testing.assert_array_equal(buffer.read(index, 0, 5, 13), rows[5:])
    with pytest.raises(PageError, match="is free"):
        buffer.read(index, 0, 4, 13)
    with pytest.raises(PageError, match="is free"):
        buffer.consume(index, 0, 0, 7)
    assert buffer.consume(index, 0, 7, 13) == 2


def test_a_retained_page_outlives_its_consumption(make_pool: MakePool) -> None:
    pool = make_pool(4, PAGE_BYTES)
    index = lay_out(pool, [[5, 3]])
    pool.retain(index.pv_page_indices[:1])
    assert PagedBuffer(pool, ROW_BYTES).consume(index, 0, 0, 8) == 1
    assert pool.used_pages() == 1


def bad_indices(index: PageIndex) -> dict[str, PageIndex]:
    """Variants of the index of test_bad_indices that contradict themselves, its rows or the pool."""

    def with_value(field: str, position: int, value: int) -> PageIndex:
        array = getattr(index, field).copy()
        array[position] = value
        return replace(index, **{field: array})

    return {
        "shapes": replace(index, pv_indptr=index.pv_indptr[:-1]),
        "shapes must": replace(index, pv_cu_page_len=index.pv_cu_page_len[:-1]),
        "shapes must be": replace(index, pv_indptr=index.pv_indptr[:0], pv_page_indptr=index.pv_indptr[:0]),
        "request 0 has the rows": with_value("pv_indptr", 1, 6),
        "describes rows": with_value("pv_indptr", 0, -3),
        "request 0 has the page entries": with_value("pv_page_indptr", 1, 4),
        "request 0 has the page": with_value("pv_page_indptr", 1, -1),
        "holds 6 rows": with_value("pv_cu_page_len", 1, 6),
        "holds -4 rows": with_value("pv_cu_page_len", 1, -4),
        "page 8 is not in a pool": with_value("pv_page_indices", 0, 8),
        "page -1 is not in a pool": with_value("pv_page_indices", 0, -1),
        "page 2147483647": with_value("pv_page_indices", 2, (1 << 31) - 1),
    }


def test_bad_indices(make_pool: MakePool) -> None:
    pool = make_pool(8, PAGE_BYTES)
    buffer = PagedBuffer(pool, ROW_BYTES)
    index = lay_out(pool, [[5, 2], [4]])
    for message, bad in bad_indices(index).items():
        with pytest.raises(ValueError, match=message):
            buffer.write(bad, numbered_rows(11))
    assert not any(pool.data()), "a page was written to before all were checked"
    wrong_type = replace(index, pv_indptr=index.pv_indptr.astype(np.int64))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pv_indptr must be a contiguous int32"):
        buffer.write(wrong_type, numbered_rows(11))


@settings(max_examples=300)
@given(
    arrays=st.lists(
        st.lists(st.integers(-3, 9) | st.integers(-(1 << 31), (1 << 31) - 1), max_size=5), min_size=4, max_size=4
    ),
    rows=st.integers(0, 12),
    where=st.lists(st.integers(-2, 12), min_size=3, max_size=3),
)
def test_no_index_reaches_outside_the_pool(arrays: list[list[int]], rows: int, where: list[int]) -> None:
    pool = PagePool.create(f"test-{os.getpid()}-garbage", 8, PAGE_BYTES)
    try:
        pool.allocate(8, 1)
        buffer = PagedBuffer(pool, ROW_BYTES)
        index = PageIndex(*(np.array(array, np.int32) for array in arrays))
        calls: list[Callable[[], Any]] = [
            lambda: buffer.write(index, numbered_rows(rows)),
            lambda: buffer.read(index, *where),
            lambda: buffer.consume(index, *where),
        ]
        for call in calls:
            try:
                call()
            except (ValueError, IndexError):
                continue
    finally:
        pool.unlink()


def test_bad_rows_and_outputs(make_pool: MakePool) -> None:
    pool = make_pool(8, PAGE_BYTES)
    buffer = PagedBuffer(pool, ROW_BYTES)
    index = lay_out(pool, [[5, 2]])
    for rows in (numbered_rows(6), numbered_rows(8)):
        with pytest.raises(ValueError, match="but there are"):
            buffer.write(index, rows)
    for rows in (numbered_rows(7)[:, :-1], numbered_rows(14)[::2], np.zeros(7, np.uint8), np.zeros((), np.uint8)):
        with pytest.raises(ValueError, match="rows must be a C-contiguous array"):
            buffer.write(index, rows)
    read_only = numbered_rows(7)
    read_only.flags.writeable = False
    for out in (numbered_rows(6), read_only, numbered_rows(14)[::2]):
        with pytest.raises(ValueError, match="out must be"):
            buffer.read(index, 0, 0, 7, out)


@pytest.mark.parametrize("where", [(-1, 0, 1), (1, 0, 1), (0, -1, 1), (0, 2, 1), (0, 0, 8)])
def test_rows_outside_the_batch(make_pool: MakePool, where: tuple[int, int, int]) -> None:
    pool = make_pool(8, PAGE_BYTES)
    buffer = PagedBuffer(pool, ROW_BYTES)
    index = lay_out(pool, [[5, 2]])
    for method in (buffer.read, buffer.consume):
        with pytest.raises(IndexError, match=r"request|rows"):
            method(index, *where)
    assert pool.used_pages() == 2
