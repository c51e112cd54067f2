"""A thread beside the one that serves: how they share threads, and what becomes of work that fails."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from unifiedserve.device.cpu.processor import thread_pool
from unifiedserve.device.cpu.side_thread import SideThread

SECONDS = 60.0


@pytest.fixture
def all_threads() -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(5)
    yield 5
    torch.set_num_threads(before)


@pytest.fixture
def side(all_threads: int) -> Iterator[SideThread]:
    side = SideThread()
    yield side
    side.close()


def test_while_it_works_each_has_a_part_of_the_threads(side: SideThread, all_threads: int) -> None:
    go_on, told = threading.Event(), threading.Event()

    def work() -> tuple[int, int]:
        assert go_on.wait(SECONDS)
        return torch.get_num_threads(), thread_pool().threads

    for _ in range(2):
        go_on.clear()
        told.clear()
        started = side.start(work, told.set)
        assert torch.get_num_threads() == 3
        assert not started.done()
        go_on.set()
        assert told.wait(SECONDS)
        assert started.done()
        assert started.wait() == (2, 2)
        assert torch.get_num_threads() == all_threads


def test_work_that_fails_is_told_and_gives_the_threads_back(side: SideThread, all_threads: int) -> None:
    def work() -> None:
        raise ValueError("this cannot be")

    told = threading.Event()
    started = side.start(work, told.set)
    assert told.wait(SECONDS)
    assert started.done()
    with pytest.raises(ValueError, match="this cannot be"):
        started.wait()
    assert torch.get_num_threads() == all_threads


def test_one_core_is_shared() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    side = SideThread()
    try:
        assert side.start(torch.get_num_threads, lambda: None).wait() == 1
    finally:
        side.close()
        torch.set_num_threads(before)


def test_each_thread_computes_with_a_pool_of_its_own(all_threads: int) -> None:
    """A pool that two threads called would let one of them wait for the other."""
    with ThreadPoolExecutor(1) as other:
        pools = [thread_pool(), other.submit(thread_pool).result()]
        assert pools[0] is thread_pool()
        assert pools[0] is not pools[1]
        assert pools[1] is other.submit(thread_pool).result()
