"""Check whether a page pool's books balance."""

from collections.abc import Iterator
from itertools import islice

from ipc_buffers import PagePool

_MOST_NAMED = 5  # pages, in an error


class PoolError(Exception):
    """Signal a pool that is damaged. No request may be in flight."""


def check_pool(name: str, pool: PagePool) -> None:
    """Raise PoolError, saying what is wrong, unless all pages are free and counted once.

    None may have an owner or a reference. Reads every page's state: meant for an idle engine.
    """
    if found := list(islice(_faults(pool), _MOST_NAMED)):
        raise PoolError(f"{name} pool of {pool.num_pages} pages: " + "; ".join(found))


def _faults(pool: PagePool) -> Iterator[str]:
    used, free, remembered = pool.used_pages(), pool.free_pages(), pool.remembered_pages()
    if used:
        yield f"{used} are in use"
    if used + free != pool.num_pages:
        yield f"{used} in use and {free} free are not all"
    if remembered > free:
        yield f"{remembered} are remembered of {free} free ones"
    for page in range(pool.num_pages):
        if fault := _fault(pool, page):
            yield fault


def _fault(pool: PagePool, page: int) -> str:
    """Return what is wrong with a page; "" if it is free as it should be."""
    owner, references = pool.owner(page), pool.references(page)
    if owner is None and not references:
        return ""
    if owner is None:
        return f"page {page} has {references} references and no owner"
    request, instance = owner
    return f"page {page} belongs to request {request} of instance {instance}, with {references} references"
