"""Report a standstill: requests wait though no worker has anything to do. Such a defect must not be silent."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from unifiedserve.engine.requests.reports import Reports
from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.engine.watchdog import processor_time
from unifiedserve.engine.workers import Workers
from unifiedserve.memory.shared import SharedMemory
from unifiedserve.placement import Placement, Stage

_log = logging.getLogger(__name__)
_POOLS = {Stage.VISION: ("patch", "visual"), Stage.PREFILL: ("kv",), Stage.DECODE: ("kv",)}  # that a stage waits for
_BUSY = 0.05  # of a core: a process that computes more has something to do, such as a long video


class Seen(NamedTuple):
    """Count what has been done until now: reports of work, and the processor time of each worker's process; seconds."""

    reports: int
    computed: Mapping[int, float]
    at: float


class Standstill:
    """Look at all requests now and then. Belongs to the engine's event loop."""

    def __init__(
        self,
        seconds: float,
        table: RequestTable,
        reports: Reports,
        workers: Workers,
        placement: Callable[[], Placement],
    ) -> None:
        """Complain once when nothing has been done for any request in so many seconds."""
        self._seconds = seconds
        self._table = table
        self._reports = reports
        self._workers = workers
        self._placement = placement
        self._task = asyncio.create_task(self._watch())

    def close(self) -> None:
        """Stop looking."""
        self._task.cancel()

    async def _watch(self) -> None:
        before, complained = self._seen(), False
        while True:
            await asyncio.sleep(self._seconds)
            now = self._seen()
            waits_here = len(self._table) > 0 and not self._table.waits_for_nodes
            stands = waits_here and stands_still(before, now)
            if stands and not complained:
                _log.error(
                    "no request has gone on for %g s though no worker computes; %d are in flight: %s",
                    self._seconds,
                    len(self._table),
                    "; ".join(waits(self._placement(), self._workers.memory, self._reports.workers)),
                )
            before, complained = now, stands

    def _seen(self) -> Seen:
        computed = {pid: processor_time(pid) / 1e9 for pid in self._workers.pids().values()}
        return Seen(self._reports.done, computed, time.monotonic())


def stands_still(before: Seen, now: Seen) -> bool:
    """Tell whether nothing was done, and next to nothing computed, between two looks."""
    computed = sum(seconds - before.computed.get(pid, 0.0) for pid, seconds in now.computed.items())
    return before.reports == now.reports and computed < _BUSY * (now.at - before.at)


def waits(
    placement: Placement, memory: SharedMemory, counts: dict[tuple[str, Stage], tuple[int, int]]
) -> Iterator[str]:
    """Yield what each stage of each instance holds, and which pages its first request awaits."""
    for instance in placement.instances:
        for stage in instance.stages:
            running, waiting = counts.get((instance.name, stage), (0, 0))
            if running or waiting:
                lacking = ", ".join(_lacking(instance.name, stage, memory))
                text = f"{instance.name} has {running} in {stage.value}, {waiting} wait"
                yield f"{text} (the first for pages: {lacking})" if lacking else text


def _lacking(instance: str, stage: Stage, memory: SharedMemory) -> Iterator[str]:
    for (name, pool), pages in memory.pools.items():
        if pool in _POOLS.get(stage, ()) and memory.status.first(instance, stage, name) is not None:
            yield f"{pages.free_pages()} of {pages.num_pages} of the {name} {pool} pool are free"
