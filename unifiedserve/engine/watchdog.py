"""Replace workers that live and do nothing: stopped ones, and those that wait for what never comes."""

import asyncio
import logging
import time
from collections.abc import Callable

from unifiedserve.engine.child_processes import children_of
from unifiedserve.engine.silence import Silence, Vitals
from unifiedserve.engine.workers import Workers
from unifiedserve.stopped import is_stopped

_log = logging.getLogger(__name__)
_LOOKS = 10  # in the time that a worker may be silent
_TRIFLE = 0.003  # of a core: threads that look for something now and then take less


class Watchdog:
    """Look at all workers now and then. Belongs to the engine's event loop."""

    def __init__(
        self, timeout: float, workers: Workers, up: Callable[[str], bool], on_hang: Callable[[], None]
    ) -> None:
        """Kill one of `workers` that is silent for `timeout` s, once `on_hang` returns.

        While one is not `up`, it only counts as silent if a signal has stopped it.
        """
        self._timeout = timeout
        self._workers = workers
        self._up = up
        self._on_hang = on_hang
        self._silences: dict[tuple[str, int], Silence] = {}  # by instance and process
        self._task = asyncio.create_task(self._watch())

    def silences(self) -> dict[str, float]:
        """Return for how many seconds each worker has shown no sign of life."""
        return {name: each.still * self._timeout / _LOOKS for (name, _), each in self._silences.items()}

    def close(self) -> None:
        """Stop watching."""
        self._task.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._timeout / _LOOKS)
            self._look()

    def _look(self) -> None:
        pids = self._workers.pids().items()
        trifle = int(_TRIFLE * 1e9 * self._timeout / _LOOKS)
        self._silences = {worker: self._silences.get(worker, Silence(_LOOKS, trifle)) for worker in pids}
        for (instance, pid), silence in self._silences.items():
            if self._up(instance) or is_stopped(pid):
                silence.look(self._vitals(instance, pid))
            else:
                silence.end()  # it starts: --startup-timeout bounds that
        if hanging := [worker for worker, silence in self._silences.items() if silence.hangs]:
            for worker in self._stopped() or hanging:
                self._kill(*worker)
            for silence in self._silences.values():
                silence.end()  # those that live may have waited for a lock of one that was stopped

    def _stopped(self) -> list[tuple[str, int]]:
        """Return the workers that a signal has stopped.

        Some may have been silent for a look less than those that wait.
        """
        return [worker for worker, silence in self._silences.items() if silence.still and is_stopped(worker[1])]

    def _kill(self, instance: str, pid: int) -> None:
        _log.error(
            "worker %s (process %d) has shown no sign of life for %g s: it is killed (see --worker-timeout)",
            instance, pid, self._timeout,
        )  # fmt: skip
        self._on_hang()
        self._workers.kill(instance)

    def _vitals(self, instance: str, pid: int) -> Vitals:
        pulses = self._workers.memory.pulses
        return Vitals(pulses.turns(instance), pulses.waits(instance), processor_time(pid))


def processor_time(pid: int) -> int:
    """Return the nanoseconds that a process has computed, and its children that live; 0 if it has ended.

    A worker may wait long for a child that compiles what it needs on a GPU.
    """
    return sum(map(_own_time, [pid, *children_of(pid)]))


def _own_time(pid: int) -> int:
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)  # the number of its clock, as clock_getcpuclockid makes it
    except OSError:
        return 0
