"""What pages cost that are read from another memory: transfers of some pages each, one after the other."""

from collections.abc import Mapping, Sequence
from statistics import median

from carriers import Fetch, fetchers, repeat

from ipc_buffers import PagePool, list_arenas
from unifiedserve.profiling.fitting import fit

PAGES = (1, 4, 16, 64, 256)  # at once
ROUNDS = 3
POOLS = ("kv", "visual")


def page_bytes(engine: int) -> dict[str, int]:
    """Return the bytes of a page of each pool of an engine that runs, by its process id."""
    sizes: dict[str, int] = {}
    for arena in list_arenas():
        if arena.pid == engine and arena.kind == "page pool":
            pool = PagePool.attach(arena.name)
            sizes[arena.name.rsplit("-", 1)[1]] = pool.page_bytes
            pool.close()
    return {name: sizes[name] for name in POOLS}


def pull_costs(kind: str, sizes: Mapping[str, int]) -> dict[str, float]:
    """Return the costs of a transfer and of its pages, which have so many bytes, in seconds."""
    rows: list[list[float]] = []
    seconds: list[float] = []
    for place, name in enumerate(POOLS):
        with fetchers(sizes[name], "nixl" if kind == "nixl" else "own") as found:
            for count, taken in _times(found[kind], PAGES).items():
                rows.append([1, *(count if place == each else 0 for each in range(len(POOLS)))])
                seconds.append(taken)
    once, kv, visual = fit(rows, seconds)
    return {"pull": once, "pull_kv_page": kv, "pull_visual_page": visual}


def _times(fetch: Fetch, counts: Sequence[int]) -> dict[int, float]:
    return {count: median(median(repeat(fetch, count)) for _ in range(ROUNDS)) for count in counts}
