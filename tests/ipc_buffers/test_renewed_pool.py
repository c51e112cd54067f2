"""Pools that are laid over a memory one after the other, in host memory and on the stand-in's GPU."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_process import MemoryProcess, RefusedError, StartProcess

from ipc_buffers import ArenaError, Memory, PagedBuffer, PageIndex, PagePool, list_arenas, remove_stale_arenas

PAGES, PAGE_BYTES = 100, 4096
SIZE = PAGES * PAGE_BYTES
NAME = f"test-{os.getpid()}-renewed"
FIRST, SECOND = f"{NAME}-0", f"{NAME}-1"

in_each_place = pytest.mark.parametrize("place", ["host", "cuda:0"])


@pytest.fixture
def memory(removal: ExitStack) -> Memory:
    memory = Memory.create(NAME, SIZE)
    removal.callback(memory.unlink)
    return memory


def contents() -> str:
    return np.random.default_rng(7).bytes(SIZE).hex()


def names() -> list[str]:
    return sorted(arena.name for arena in list_arenas() if arena.name.startswith(NAME))


def begin(engine: MemoryProcess, place: str) -> None:
    engine.create("data", NAME, SIZE, place)
    engine.lay_pool(FIRST, "data", PAGE_BYTES)


def renew(engine: MemoryProcess) -> None:
    engine.close_pool(FIRST)
    engine.lay_pool(SECOND, "data", PAGE_BYTES)


@in_each_place
def test_data_survive_a_worker_and_words_are_new(start_process: StartProcess, place: str, tmp_path: Path) -> None:
    engine, worker = start_process(), start_process()
    begin(engine, place)
    worker.attach_pool(FIRST)
    pages = worker.allocate(FIRST, 60, 7)
    worker.remember(FIRST, pages)
    worker.write(FIRST, 0, contents())
    blocks = sorted(tmp_path.iterdir())
    worker.kill()
    assert engine.free_pages(FIRST) == PAGES - 60

    engine.unlink_pool(FIRST)
    renew(engine)
    assert engine.live() == (0 if place == "host" else 2), "the same memory, once"
    assert sorted(tmp_path.iterdir()) == blocks, "nothing was taken or freed"
    following = start_process()
    following.attach_pool(SECOND)
    assert following.about(SECOND) == engine.about("data")
    for process in (engine, following):
        assert process.read(SECOND, 0, SIZE) == contents()
        assert (process.free_pages(SECOND), process.remembered_pages(SECOND)) == (PAGES, 0)
    assert len(following.allocate(SECOND, PAGES, 8)) == PAGES
    assert engine.read("data", 0, SIZE) == contents()
    assert names() == [NAME, SECOND]


@in_each_place
@pytest.mark.parametrize("name", [FIRST, SECOND], ids=["the first", "the second"])
def test_old_handles_do_not_touch_new_words(start_process: StartProcess, place: str, name: str) -> None:
    engine, late = start_process(), start_process()
    begin(engine, place)
    late.attach_pool(FIRST)
    held = late.allocate(FIRST, 60, 7)
    engine.unlink_pool(FIRST)
    engine.close_pool(FIRST)
    engine.lay_pool(name, "data", PAGE_BYTES)
    pages = engine.allocate(name, 30, 7)
    epochs = engine.remember(name, pages)

    late.remember(FIRST, held)
    assert late.allocate(FIRST, 40, 8) is not None
    assert late.reclaim(FIRST, 7) == 60
    late.unlink_pool(FIRST)
    late.close_pool(FIRST)
    assert engine.free_pages(name) == PAGES - 30
    assert engine.recall(name, pages, epochs, 9) == 30
    assert names() == [NAME, name]
    fresh = start_process()
    fresh.attach_pool(name)
    assert fresh.free_pages(name) == PAGES - 30


@in_each_place
def test_the_memory_s_life_is_its_own(start_process: StartProcess, place: str) -> None:
    engine, worker = start_process(), start_process()
    begin(engine, place)
    engine.write("data", 0, b"kept".hex())
    engine.unlink_pool(FIRST)
    engine.close_pool(FIRST)
    worker.attach("data", NAME)
    assert worker.read("data", 0, 4) == b"kept".hex()
    worker.close("data")

    engine.lay_pool(SECOND, "data", PAGE_BYTES)
    engine.close("data")
    assert engine.read(SECOND, 0, 4) == b"kept".hex(), "a pool is a use of its memory"
    worker.attach_pool(SECOND)
    assert worker.read(SECOND, 0, 4) == b"kept".hex()
    worker.close_pool(SECOND)
    engine.close_pool(SECOND)
    assert engine.live() == worker.live() == 0


@in_each_place
def test_a_memory_that_is_gone_is_told(start_process: StartProcess, place: str) -> None:
    engine, worker = start_process(), start_process()
    begin(engine, place)
    engine.unlink("data")
    with pytest.raises(RefusedError, match=f"ArenaError: page pool '{FIRST}'.*arena '{NAME}': does not exist"):
        worker.attach_pool(FIRST)
    engine.create("other", NAME, SIZE, place)
    with pytest.raises(RefusedError, match=f"ArenaError: page pool '{FIRST}': its memory, '{NAME}', is gone"):
        worker.attach_pool(FIRST)
    assert worker.live() == 0


@in_each_place
def test_both_parts_of_the_dead_are_removed(start_process: StartProcess, place: str) -> None:
    engine = start_process()
    begin(engine, place)
    engine.kill()
    assert [(arena.kind, arena.alive) for arena in list_arenas() if arena.name.startswith(NAME)] == [
        ("memory", False),
        ("page pool", False),
    ]
    assert {NAME, FIRST} <= set(remove_stale_arenas())
    assert names() == []


def test_a_pool_of_the_dead_on_a_gpu_is_told(start_process: StartProcess) -> None:
    engine, worker = start_process(), start_process()
    begin(engine, "cuda:0")
    engine.kill()
    with pytest.raises(RefusedError, match=rf"page pool '{FIRST}'.*process {engine.pid}, which created it, has ended"):
        worker.attach_pool(FIRST)


def test_rows_are_read_again(memory: Memory) -> None:
    rows = np.arange(3 * 512, dtype=np.uint8).reshape(-1, 512)
    index = PageIndex.build([[(5, 3)]])
    first = PagePool.over(FIRST, memory, PAGE_BYTES)
    try:
        assert first.allocate(PAGES, 1) is not None
        PagedBuffer(first, 512).write(index, rows)
    finally:
        first.unlink()
    second = PagePool.over(FIRST, first.memory, PAGE_BYTES)
    try:
        assert second.allocate(PAGES, 1) is not None
        np.testing.assert_array_equal(PagedBuffer(second, 512).read(index, 0, 0, 3), rows)
    finally:
        second.unlink()


@given(pages=st.integers(1, 200), page_bytes=st.integers(1, 100))
def test_every_byte_belongs_to_a_page(pages: int, page_bytes: int) -> None:
    memory = Memory.create(NAME, pages * page_bytes)
    try:
        pool = PagePool.over(FIRST, memory, page_bytes)
        try:
            assert (pool.num_pages, pool.page_bytes, pool.memory.name) == (pages, page_bytes, NAME)
            assert PagePool.attach(FIRST).num_pages == pages
            assert np.shares_memory(np.from_dlpack(pool.memory), np.from_dlpack(memory))
            assert len(pool.data()) == memory.nbytes
        finally:
            pool.unlink()
    finally:
        memory.unlink()


def test_what_a_pool_cannot_be_laid_over(memory: Memory, removal: ExitStack) -> None:
    for page_bytes in (-1, 0, SIZE + 1, 1 << 40):
        with pytest.raises(ValueError, match="allowed are 1 to"):
            PagePool.over(FIRST, memory, page_bytes)
    with pytest.raises(ValueError, match=rf"{SIZE} bytes of memory '{NAME}' are no whole number of pages of 4095"):
        PagePool.over(FIRST, memory, 4095)
    with pytest.raises(ValueError, match="arena name"):
        PagePool.over("", memory, PAGE_BYTES)
    with pytest.raises(ArenaError, match="in use"):
        PagePool.over(NAME, memory, PAGE_BYTES)
    whole = PagePool.create(SECOND, PAGES, PAGE_BYTES)
    removal.callback(whole.unlink)
    with pytest.raises(ValueError, match=rf"memory '{SECOND}' belongs to a pool already"):
        PagePool.over(FIRST, whole.memory, PAGE_BYTES)
    memory.close()
    with pytest.raises(ArenaError, match="closed"):
        PagePool.over(FIRST, memory, PAGE_BYTES)
    assert names() == [NAME, SECOND]


def test_names_may_be_as_long_as_any(removal: ExitStack) -> None:
    memory = Memory.create(NAME.ljust(200, "x"), SIZE)
    removal.callback(memory.unlink)
    pool = PagePool.over(FIRST.ljust(200, "x"), memory, PAGE_BYTES)
    removal.callback(pool.unlink)
    assert PagePool.attach(pool.name).memory.name == memory.name


@pytest.mark.gpu
def test_data_of_a_real_gpu_survive_a_worker() -> None:
    worker, following = MemoryProcess(), MemoryProcess()
    memory = Memory.create(NAME, SIZE, "cuda:0")
    pools = [PagePool.over(FIRST, memory, PAGE_BYTES)]
    try:
        worker.attach_pool(FIRST)
        worker.write(FIRST, 0, contents())
        worker.kill()
        pools[0].close()
        pools.append(PagePool.over(SECOND, memory, PAGE_BYTES))
        following.attach_pool(SECOND)
        assert following.read(SECOND, 0, SIZE) == contents()
        assert following.free_pages(SECOND) == PAGES
        following.close_pool(SECOND)
    finally:
        for process in (worker, following):
            process.kill()
        for part in (*pools, memory):
            part.close()
            part.unlink()
