"""Free pages keep what they held until they are taken anew, in order of their last use."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from ipc_processes import MakePool, StartWorker

from ipc_buffers import PageError, PagePool


def test_what_free_pages_held_comes_back(make_pool: MakePool) -> None:
    pool = make_pool(4, 8)
    pages = pool.allocate(2, 1)
    assert pages is not None
    data = np.frombuffer(pool.data(), np.int64)
    data[pages] = 11, 12
    epochs = pool.remember(pages)
    assert pool.release(pages) == 2
    assert (pool.free_pages(), pool.remembered_pages()) == (4, 2)
    assert pool.renew(pages, epochs) == (2, 0)
    other = PagePool.attach(pool.name)
    assert other.recall(pages, epochs, request=2, instance=3) == 2
    assert data[pages].tolist() == [11, 12]
    assert pool.owner(pages[0]) == (2, 3)
    assert pool.recall(pages, epochs, request=4) == 2
    assert pool.renew(pages, epochs) == (2, 2)
    assert pool.reclaim(request=2) == 0, "two requests hold them: neither's to reclaim"
    assert pool.release(pages) == 0
    assert pool.release(pages) == 2
    assert pool.remembered_pages() == 2


def test_what_was_taken_anew_is_forgotten(make_pool: MakePool) -> None:
    pool = make_pool(3, 8)
    pages = pool.allocate(3, 1)
    assert pages is not None
    epochs = pool.remember(pages)
    pool.release(pages)
    (taken,) = pool.allocate(1, 2).tolist()  # type: ignore[union-attr]
    assert taken == pages[2], "of pages released together the last goes first"
    assert pool.recall(pages, epochs, request=3) == 2
    assert pool.recall([taken], epochs[2:], request=3) == 0
    assert pool.references(taken) == 1
    pool.release([taken])
    assert pool.recall([taken], epochs[2:], request=3) == 0
    assert pool.free_pages() == 1


def test_an_allocation_that_fails_forgets_nothing(make_pool: MakePool) -> None:
    pool = make_pool(10, 8)
    pages = pool.allocate(6, 1)
    assert pages is not None
    epochs = pool.remember(pages)
    pool.release(pages)
    pool.allocate(2, 2)
    assert pool.allocate(9, 2) is None
    assert pool.renew(pages, epochs) == (6, 0)


def test_large_pools_forget_their_oldest_a_few_at_a_time(make_pool: MakePool) -> None:
    pool = make_pool(640, 8)
    pages = pool.allocate(640, 1)
    assert pages is not None
    epochs = pool.remember(pages)
    pool.release(pages[::-1])
    taken = pool.allocate(5, 2)
    assert taken is not None
    assert sorted(taken) == sorted(pages[:5])
    assert pool.remembered_pages() == 640 - 5 - 10
    taken = pool.allocate(10, 2)
    assert taken is not None
    assert sorted(taken) == sorted(pages[5:15])
    assert pool.recall(pages[15:], epochs[15:], request=3) == 625


def test_bad_arguments(make_pool: MakePool) -> None:
    pool = make_pool(3, 8)
    with pytest.raises(PageError, match="is free"):
        pool.remember([1])
    with pytest.raises(PageError, match="not in a pool"):
        pool.recall([3], [0], request=1)
    with pytest.raises(PageError, match="not in a pool"):
        pool.renew([3], [0])
    with pytest.raises(ValueError, match="2 pages with 1 epochs"):
        pool.renew([0, 1], [0])
    with pytest.raises(ValueError, match="4294967296"):
        pool.recall([0], [0], request=1 << 32)


def test_no_process_recalls_what_another_has_written(make_pool: MakePool, start: StartWorker) -> None:
    pool = make_pool(60, 64)
    workers = [start("recall_pages", pool.name, request, 3_000) for request in range(1, 4)]
    assert all(int(worker.finish()[-1]) > 0 for worker in workers)
    assert pool.free_pages() == 60


class MemoryMachine(RuleBasedStateMachine):
    """Pages, the order of their last uses and who may recall them, against dictionaries."""

    NUM_PAGES = 40

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool.create(f"test-{os.getpid()}-memory", self.NUM_PAGES, 16)
        self.references = dict.fromkeys(range(self.NUM_PAGES), 0)
        self.uses = 0
        self.last_used: dict[int, int] = {}  # of remembered pages
        self.known: dict[int, int] = {}  # page -> epoch in which it can be recalled
        self.stale: list[tuple[int, int]] = []

    def teardown(self) -> None:
        self.pool.unlink()

    @property
    def held(self) -> list[int]:
        return [page for page, references in self.references.items() if references]

    def used(self, pages: list[int]) -> None:
        """The first of them last."""
        self.uses += len(pages)
        for age, page in enumerate(pages):
            if page in self.last_used:
                self.last_used[page] = self.uses - age

    @rule(count=st.integers(0, 41))
    def allocate(self, count: int) -> None:
        free = [page for page, references in self.references.items() if not references]
        pages = self.pool.allocate(count, 1)
        assert (pages is None) == (count > len(free))
        if pages is None:
            return
        by_age = sorted(self.last_used[page] for page in free if page in self.last_used)
        worthless = len(free) - len(by_age)
        forgotten = sorted(self.last_used.pop(page) for page in pages.tolist() if page in self.last_used)
        assert forgotten == by_age[: max(0, count - worthless)]
        for page in pages.tolist():
            assert self.references[page] == 0
            self.references[page] = 1
            if page in self.known:
                self.stale.append((page, self.known.pop(page)))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def remember(self, data: st.DataObject) -> None:
        pages = data.draw(st.lists(st.sampled_from(self.held), unique=True))
        for page, epoch in zip(pages, self.pool.remember(pages).tolist(), strict=True):
            self.uses += 1
            self.last_used[page] = self.uses
            self.known[page] = epoch

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        pages = data.draw(st.lists(st.sampled_from(self.held), unique=True))
        self.used(pages)
        for page in pages:
            self.references[page] -= 1
        assert self.pool.release(pages) == sum(self.references[page] == 0 for page in pages)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), renew=st.booleans())
    def recall(self, data: st.DataObject, renew: bool) -> None:
        pages = data.draw(st.lists(st.sampled_from(sorted(self.known)), unique=True))
        epochs = [self.known[page] for page in pages]
        if renew:
            in_use = sum(self.references[page] > 0 for page in pages)
            assert self.pool.renew(pages, epochs) == (len(pages), in_use)
            self.used(pages)
            return
        assert self.pool.recall(pages, epochs, 2) == len(pages)
        for page in pages:
            self.references[page] += 1

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def recall_what_is_gone(self, data: st.DataObject) -> None:
        page, epoch = data.draw(st.sampled_from(self.stale))
        assert self.pool.renew([page], [epoch]) == (0, 0)
        assert self.pool.recall([page], [epoch], 3) == 0

    @invariant()
    def agrees(self) -> None:
        assert self.pool.used_pages() == len(self.held)
        assert self.pool.remembered_pages() == len(self.last_used.keys() - set(self.held))
        for page, references in self.references.items():
            assert self.pool.references(page) == references


MemoryMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestMemoryMachine = MemoryMachine.TestCase
