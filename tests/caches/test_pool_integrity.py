"""What an idle engine's pools must be like, and what is said of one that is not."""

import uuid
from collections.abc import Iterator

import pytest

from ipc_buffers import PagePool
from unifiedserve.memory.integrity import PoolError, check_pool


@pytest.fixture
def pool() -> Iterator[PagePool]:
    pool = PagePool.create(f"test-integrity-{uuid.uuid4().hex[:12]}", 8, 64)
    yield pool
    pool.close()
    pool.unlink()


def test_free_and_remembered_pages_are_in_order(pool: PagePool) -> None:
    check_pool("kv", pool)
    pages = pool.allocate(3, request=7)
    pool.remember(pages)
    pool.release(pages)
    check_pool("kv", pool)
    assert pool.remembered_pages() == 3


def test_a_page_that_is_left_behind_is_named_with_its_owner(pool: PagePool) -> None:
    pages = pool.allocate(2, request=7, instance=3)
    assert pages is not None
    pool.release(pages[1:])
    pool.retain(pages[:1])
    wrong = rf"kv pool of 8 pages: 1 are in use; page {pages[0]} belongs to request 7 of instance 3, with 2 references$"
    with pytest.raises(PoolError, match=wrong):
        check_pool("kv", pool)
    pool.reclaim(request=7)
    check_pool("kv", pool)


def test_a_page_that_is_shared_belongs_to_nobody_and_is_named_too(pool: PagePool) -> None:
    pages = pool.allocate(1, request=7)
    epochs = pool.remember(pages)
    assert pool.recall(pages, epochs, request=8) == 1
    with pytest.raises(PoolError, match=f"page {pages[0]} belongs to request 0 of instance 0, with 2 references"):
        check_pool("kv", pool)


def test_only_the_first_of_many_faults_are_named(pool: PagePool) -> None:
    pool.allocate(8, request=7)
    with pytest.raises(PoolError) as found:
        check_pool("visual", pool)
    assert str(found.value).count("page ") == 4
