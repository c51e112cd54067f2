"""Requests of which none goes on are told of, with what they wait for; those that do are not."""

import asyncio
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from unifiedserve.engine.standstill import Seen, Standstill, stands_still, waits
from unifiedserve.memory.shared import EngineLayout, MemoryLayout, PoolSize, SharedMemory, create_pages, free
from unifiedserve.placement import Placement, Stage, read_placement

SHARED = read_placement("shared", range(2))


class Table(list[object]):
    """Requests, none of which waits for another node."""

    waits_for_nodes = False


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    size, placement = PoolSize(8, 64), SHARED
    names = tuple(instance.name for instance in placement.instances)
    layout = EngineLayout(f"test-{uuid.uuid4().hex[:12]}", {"mem0": MemoryLayout(size, size, size)}, names)
    pages = create_pages(layout, layout.engine_id)
    memory = SharedMemory.create(layout, pages)
    yield memory
    memory.unlink()
    free(pages.values())


def test_what_is_done_or_computed_is_no_standstill() -> None:
    before = Seen(reports=3, computed={11: 4.0, 12: 6.0}, at=100.0)
    assert stands_still(before, Seen(3, {11: 4.1, 12: 6.0}, 110.0))
    assert not stands_still(before, Seen(4, {11: 4.0, 12: 6.0}, 110.0))
    assert not stands_still(before, Seen(3, {11: 9.0, 12: 6.0}, 110.0)), "a long video is decoded"
    assert not stands_still(before, Seen(3, {11: 4.0, 13: 2.0}, 110.0)), "another worker starts in place of a dead one"


def test_what_each_stage_waits_for_is_named(memory: SharedMemory) -> None:
    pool = memory.pools["mem0", "kv"]
    assert pool.allocate(6, 1) is not None
    memory.status.set_first("encode-prefill", Stage.PREFILL, "mem0", (0, 5.0))
    counts = {("encode-prefill", Stage.PREFILL): (0, 2), ("decode", Stage.DECODE): (1, 0)}
    assert list(waits(SHARED, memory, counts)) == [
        "encode-prefill has 0 in prefill, 2 wait (the first for pages: 2 of 8 of the mem0 kv pool are free)",
        "decode has 1 in decode, 0 wait",
    ]


async def test_it_is_said_once_until_something_is_done(memory: SharedMemory, caplog: pytest.LogCaptureFixture) -> None:
    looked: asyncio.Queue[Placement] = asyncio.Queue()

    def placement() -> Placement:
        looked.put_nowait(SHARED)
        return SHARED

    reports = SimpleNamespace(done=0, workers={("decode", Stage.DECODE): (1, 0)})
    looks = 0

    def pids() -> dict[str, int]:
        nonlocal looks
        looks += 1
        reports.done += looks == 4  # once, after it was complained of
        return {}

    given: tuple[Any, ...] = Table([object()]), reports, SimpleNamespace(pids=pids, memory=memory)
    standstill = Standstill(0.01, *given, placement)
    await looked.get()
    await looked.get()
    standstill.close()
    complaints = [record.getMessage() for record in caplog.records]
    assert (
        complaints
        == [
            "no request has gone on for 0.01 s though no worker computes; 1 are in flight: "
            "decode has 1 in decode, 0 wait"
        ]
        * 2
    )
    assert looks == 5, "once at each of two standstills"
