"""Epochs of pages, as those see them who hold none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from sides import unique_name

from ipc_buffers import PageError, PagePool


@pytest.fixture
def pool() -> Iterator[PagePool]:
    made = PagePool.create(unique_name(), 4, 64)
    yield made
    made.unlink()


def test_an_epoch_begins_when_a_page_is_taken_and_not_when_it_is_freed(pool: PagePool) -> None:
    before = pool.epochs(range(4))
    pages = pool.allocate(4, 1)
    assert pages is not None
    held = pool.epochs(pages)
    assert (held == before[pages] + 1).all()
    pool.retain(pages)
    pool.release(pages)
    pool.release(pages)
    assert (pool.epochs(pages) == held).all()
    assert pool.allocate(1, 1) is not None
    assert (pool.epochs(range(4)) > before).sum() == 4
    assert (pool.epochs(range(4)).sum()) == before.sum() + 5


def test_looking_makes_nothing_worth_keeping(pool: PagePool) -> None:
    pages = pool.allocate(2, 1)
    assert pages is not None
    epochs = pool.epochs(pages)
    pool.release(pages)
    assert pool.remembered_pages() == 0
    assert pool.recall(pages, epochs, 2) == 2, "they are the epochs of remember()"
    assert (pool.remember(pages) == epochs).all()


def test_they_are_words_of_shared_memory(pool: PagePool) -> None:
    words = np.frombuffer(pool.epoch_words(), np.uint64)
    assert pool.allocate(3, 1) is not None
    assert (words == pool.epochs(range(4))).all()
    other = PagePool.attach(pool.name)
    assert (other.epochs(range(4)) == words).all()
    assert other.inode == pool.inode


@pytest.mark.parametrize("page", [4, -1, 1 << 40])
def test_pages_that_there_are_not(pool: PagePool, page: int) -> None:
    with pytest.raises(PageError):
        pool.epochs([page])


def test_no_pages(pool: PagePool) -> None:
    assert pool.epochs([]).tolist() == []
