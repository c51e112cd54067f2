from __future__ import annotations

import os
import random

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from ipc_processes import MakePool, StartWorker
from numpy.typing import NDArray

from ipc_buffers import ArenaError, PageError, PagePool


def take(pool: PagePool, count: int, request: int, instance: int = 0) -> NDArray[np.int32]:
    pages = pool.allocate(count, request, instance)
    assert pages is not None
    return pages


def test_allocation_is_all_or_nothing(make_pool: MakePool) -> None:
    pool = make_pool(100, 64)
    pages = take(pool, 60, request=7, instance=3)
    assert pages.dtype == np.int32
    assert len(set(pages.tolist())) == 60
    assert pool.allocate(41, request=8) is None
    assert pool.free_pages() == 40
    assert pool.used_pages() == 60
    assert pool.owner(pages[0]) == (7, 3)
    assert pool.references(pages[0]) == 1
    rest = pool.allocate(40, request=8)
    assert rest is not None
    assert sorted([*pages, *rest]) == list(range(100))
    assert pool.release(rest) == 40
    assert pool.owner(rest[0]) is None


def test_a_page_lives_until_its_last_reference(make_pool: MakePool) -> None:
    pool = make_pool(10, 64)
    pages = take(pool, 4, request=1)
    pool.retain(pages)
    assert PagePool.attach(pool.name).release(pages) == 0
    assert pool.references(pages[0]) == 1
    assert pool.release(pages) == 4
    assert pool.free_pages() == 10


def test_releasing_a_free_page_changes_nothing(make_pool: MakePool) -> None:
    pool = make_pool(10, 64)
    pages = take(pool, 3, request=1)
    free = next(page for page in range(10) if page not in pages)
    with pytest.raises(PageError, match=f"page {free} is free"):
        pool.release([*pages, free])
    with pytest.raises(PageError, match=f"page {free} is free"):
        pool.retain([*pages, free])
    assert [pool.references(page) for page in pages] == [1, 1, 1]
    with pytest.raises(PageError, match="is free"):
        pool.release([pages[0], pages[0]])
    assert pool.used_pages() == 2


@pytest.mark.parametrize("page", [-1, 10, 1 << 31, -(1 << 33), (1 << 32) + 1])
def test_page_numbers_out_of_range(make_pool: MakePool, page: int) -> None:
    pool = make_pool(10, 64)
    pool.allocate(10, request=1)
    for operation in (pool.retain, pool.release, pool.owner, pool.references):
        with pytest.raises(PageError, match=str(page)):
            operation(page)
    with pytest.raises(PageError):
        pool.release([0, page])
    assert pool.used_pages() == 10


def test_page_numbers_may_be_any_integers(make_pool: MakePool) -> None:
    pool = make_pool(10, 64)
    pages = take(pool, 10, request=1)
    assert pool.release(pages[:1].astype(np.uint8)) == 1
    assert pool.release(pages[1:4].tolist()) == 3
    assert pool.release(pages[4:8][::2]) == 2
    assert pool.release([]) == 0
    with pytest.raises(TypeError, match="integers"):
        pool.release([5.0])
    with pytest.raises(TypeError, match="integers"):
        pool.release(["5"])


@pytest.mark.parametrize(
    ("count", "request_id", "instance"), [(-1, 0, 0), (1, -1, 0), (1, 1 << 32, 0), (1, 0, -1), (1, 0, 4095)]
)
def test_bad_owners_and_counts(make_pool: MakePool, count: int, request_id: int, instance: int) -> None:
    pool = make_pool(10, 64)
    with pytest.raises(ValueError, match=r"-1|4294967296|4095"):
        pool.allocate(count, request_id, instance)
    assert pool.free_pages() == 10


@pytest.mark.parametrize(("num_pages", "page_bytes"), [(0, 1), (1, 0), (-1, 1), (1 << 31, 1), (1, (1 << 32) + 1)])
def test_bad_sizes(num_pages: int, page_bytes: int) -> None:
    with pytest.raises(ValueError, match="page pool"):
        PagePool.create(f"test-{os.getpid()}-sizes", num_pages, page_bytes)


def test_reclaim_by_owner(make_pool: MakePool) -> None:
    pool = make_pool(100, 64)
    pool.retain(take(pool, 10, request=1, instance=1))
    pool.allocate(20, request=1, instance=2)
    pool.allocate(30, request=2, instance=2)
    with pytest.raises(ValueError, match="needs a request"):
        pool.reclaim()
    assert pool.reclaim(request=3) == 0
    assert pool.reclaim(request=1, instance=1) == 10
    assert pool.reclaim(instance=2) == 50
    assert pool.free_pages() == 100


def test_data_is_aligned_and_shared(make_pool: MakePool) -> None:
    pool = make_pool(7, 1000)
    mine = np.frombuffer(pool.data(), np.uint8)
    assert mine.size == 7_000
    assert mine.ctypes.data % 4096 == 0
    other = PagePool.attach(pool.name)
    assert (other.num_pages, other.page_bytes) == (7, 1000)
    view = other.data()
    other.close()
    mine[6_999] = 9
    assert view[6_999] == 9
    with pytest.raises(ArenaError, match="closed"):
        other.allocate(1, 1)


def test_references_are_counted_to_their_limit(make_pool: MakePool) -> None:
    pool = make_pool(2, 64)
    page, other = take(pool, 2, request=(1 << 32) - 1, instance=4094)
    limit = (1 << 20) - 2
    pool.retain(np.full(limit - 1, page))
    with pytest.raises(PageError, match="references already"):
        pool.retain([other, page])
    assert (pool.references(page), pool.references(other)) == (limit, 1)
    assert pool.owner(page) == ((1 << 32) - 1, 4094)
    assert pool.release(np.full(limit, page)) == 1


def test_no_page_is_given_to_two_processes(make_pool: MakePool, start: StartWorker) -> None:
    pool = make_pool(200, 64)
    workers = [start("churn_pages", pool.name, request, 2_000) for request in range(1, 5)]
    assert all(int(worker.finish()[-1]) > 0 for worker in workers)
    assert pool.free_pages() == 200
    everything = pool.allocate(200, request=1)
    assert everything is not None
    assert sorted(everything) == list(range(200))


def test_killed_processes_leave_pages_that_can_be_reclaimed(make_pool: MakePool, start: StartWorker) -> None:
    pool = make_pool(300, 64)
    survivor = start("churn_pages", pool.name, 1, 0)
    chance = random.Random(5)
    for request in range(2, 14):
        victim = start("churn_pages", pool.name, request, 0)
        for _ in range(chance.randint(1, 20)):
            victim.read_line()
        victim.kill()
        pool.reclaim(request)
        owners = {pool.owner(page) for page in range(300)}
        assert owners <= {None, (1, 0)}
        survivor.read_line()
    survivor.kill()
    pool.reclaim(1)
    assert pool.free_pages() == 300
    assert pool.allocate(300, request=1) is not None


class PoolMachine(RuleBasedStateMachine):
    """The pool, through two handles, against a dictionary."""

    NUM_PAGES = 150

    def __init__(self) -> None:
        super().__init__()
        pool = PagePool.create(f"test-{os.getpid()}-machine", self.NUM_PAGES, 16)
        self.pools = [pool, PagePool.attach(pool.name)]
        self.owners: dict[int, tuple[int, int]] = {}
        self.references: dict[int, int] = {}

    def teardown(self) -> None:
        self.pools[0].unlink()

    def free(self, page: int) -> None:
        del self.owners[page], self.references[page]

    @rule(handle=st.integers(0, 1), count=st.integers(0, 160), request=st.integers(0, 3), instance=st.integers(0, 2))
    def allocate(self, handle: int, count: int, request: int, instance: int) -> None:
        pages = self.pools[handle].allocate(count, request, instance)
        assert (pages is None) == (count > self.NUM_PAGES - len(self.owners))
        for page in [] if pages is None else pages.tolist():
            assert page not in self.owners
            self.owners[page] = (request, instance)
            self.references[page] = 1

    @rule(handle=st.integers(0, 1), data=st.data())
    def retain(self, handle: int, data: st.DataObject) -> None:
        pages = data.draw(st.lists(st.integers(-2, self.NUM_PAGES + 1), max_size=20))
        if any(page not in self.owners for page in pages):
            with pytest.raises(PageError):
                self.pools[handle].retain(pages)
            return
        self.pools[handle].retain(pages)
        for page in pages:
            self.references[page] += 1

    @rule(handle=st.integers(0, 1), data=st.data())
    def release(self, handle: int, data: st.DataObject) -> None:
        pages = data.draw(st.lists(st.sampled_from(sorted(self.owners) or [0]), max_size=40, unique=True))
        if any(page not in self.owners for page in pages):
            with pytest.raises(PageError):
                self.pools[handle].release(pages)
            return
        freed = self.pools[handle].release(pages)
        last = [page for page in pages if self.references[page] == 1]
        for page in pages:
            self.references[page] -= 1
        for page in last:
            self.free(page)
        assert freed == len(last)

    @rule(
        handle=st.integers(0, 1),
        owner=st.tuples(st.none() | st.integers(0, 3), st.none() | st.integers(0, 2)).filter(any),
    )
    def reclaim(self, handle: int, owner: tuple[int | None, int | None]) -> None:
        held = [
            page
            for page, of in self.owners.items()
            if all(wanted in (None, actual) for wanted, actual in zip(owner, of, strict=True))
        ]
        assert self.pools[handle].reclaim(*owner) == len(held)
        for page in held:
            self.free(page)

    @invariant()
    def agrees(self) -> None:
        for pool in self.pools:
            assert pool.used_pages() == len(self.owners)
            assert pool.free_pages() == self.NUM_PAGES - len(self.owners)
        for page in range(self.NUM_PAGES):
            assert self.pools[0].owner(page) == self.owners.get(page)
            assert self.pools[1].references(page) == self.references.get(page, 0)


PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestPoolMachine = PoolMachine.TestCase
