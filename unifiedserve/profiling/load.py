"""Measure how busy other programs keep the cores meanwhile."""

import os
import time

import psutil

_LOOK_SECONDS = 0.5


class OtherLoad:
    """Measure what other programs take of the cores, from its making on. This one and its children do not count."""

    def __init__(self) -> None:
        self._cores = sorted(os.sched_getaffinity(0))
        self._start = time.monotonic()
        self._all, self._own = self._busy(), _own_seconds()

    def share(self) -> float:
        """Return the part of the cores' time since then, 0 to 1.

        The time of children that have ended counts as ours.
        """
        passed = (time.monotonic() - self._start) * len(self._cores)
        others = (self._busy() - self._all) - (_own_seconds() - self._own)
        return min(1.0, max(0.0, others / passed)) if passed else 0.0

    def _busy(self) -> float:
        times = psutil.cpu_times(percpu=True)
        mine = [times[core] for core in self._cores if core < len(times)]
        return sum(sum(each) - each.idle - each.iowait - each.guest - each.guest_nice for each in mine)


def share_now() -> float:
    """Return what other programs take of the cores now, 0 to 1; takes half a second."""
    load = OtherLoad()
    time.sleep(_LOOK_SECONDS)
    return load.share()


def _own_seconds() -> float:
    """Return the processor time of this process and its children, ended ones included."""
    here = psutil.Process()
    total = _seconds(here) + sum(here.cpu_times()[2:4])
    for child in here.children(recursive=True):
        try:
            total += _seconds(child) + sum(child.cpu_times()[2:4])
        except psutil.NoSuchProcess:
            continue
    return total


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
