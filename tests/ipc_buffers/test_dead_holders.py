"""References of dead processes: counted, and corrected, while others go on."""

import pytest
from ipc_processes import MakePool

from ipc_buffers import PageError, PagePool


def share(pool: PagePool, page: int, times: int) -> None:
    """Recall a page that somebody holds."""
    epochs = pool.remember([page])
    for request in range(100, 100 + times):
        assert pool.recall([page], epochs, request) == 1


def words(pool: PagePool) -> dict[int, int]:
    pages, seen = pool.shared()
    return dict(zip(pages.tolist(), seen.tolist(), strict=True))


def test_owners_are_told_and_shared_pages_belong_to_none(make_pool: MakePool) -> None:
    pool = make_pool(10, 64)
    first, second = pool.allocate(2, 7, 3), pool.allocate(1, 5, 4094)
    assert first is not None
    assert second is not None
    assert pool.requests() == [5, 7]
    share(pool, int(second[0]), 1)
    assert pool.requests() == [7]
    assert list(words(pool)) == second.tolist()
    assert pool.owner(second[0]) == (0, 0)
    assert pool.reclaim(instance=0) == 1
    assert words(pool) == {}


def test_a_shared_page_is_corrected_unless_it_has_changed(make_pool: MakePool) -> None:
    pool = make_pool(10, 64)
    page = int(pool.allocate(1, 7)[0])  # type: ignore[index]
    share(pool, page, 2)
    seen = words(pool)[page]
    pool.retain([page])
    pool.release([page])
    assert pool.references(page) == 3
    assert not pool.correct(page, seen, 1), "as many references, but not the same ones"
    seen = words(pool)[page]
    assert not pool.correct(page, seen, 4), "counted twice"
    assert pool.correct(page, seen, 3)
    assert pool.correct(page, words(pool)[page], 1)
    assert pool.references(page) == 1
    assert pool.correct(page, words(pool)[page], 0)
    assert pool.owner(page) is None
    assert pool.remembered_pages() == 1
    with pytest.raises(PageError, match="page 10 is not in a pool"):
        pool.correct(10, seen, 0)


def test_a_request_s_pages_have_as_many_references_as_places(make_pool: MakePool) -> None:
    pool = make_pool(10, 64)
    own, others = pool.allocate(4, 7, 2), pool.allocate(2, 8, 2)
    assert own is not None
    assert others is not None
    pool.retain(own)
    share(pool, int(own[3]), 1)
    assert pool.settle(7, [own[0], own[1], own[1], own[3]]) == 1
    assert [pool.references(page) for page in own] == [1, 2, 0, 3]
    assert [pool.references(page) for page in others] == [1, 1]
    with pytest.raises(PageError, match="page 10 is not in a pool"):
        pool.settle(7, [10])
