"""Memory of a server: its processes' proportional set sizes, in which what they share counts once."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil

INTERVAL = 1.0  # seconds; a look takes a tenth of one


def family(pid: int) -> list[psutil.Process]:
    """Return the process and all that it started, as far as they live."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def proportional_set_size(pid: int) -> int:
    """Return the bytes of the process and all that it started."""
    return sum(map(_pss, (process.pid for process in family(pid))))


def _pss(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


class Peak:
    """The largest sum of the sizes seen so far, in bytes."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.bytes = 0

    def look(self) -> None:
        self.bytes = max(self.bytes, proportional_set_size(self._pid))


@contextlib.contextmanager
def watched(pid: int) -> Iterator[Peak]:
    """Watch the sizes, the last time at the end. It costs time, so nothing should be timed meanwhile."""
    peak, done = Peak(pid), threading.Event()

    def watch() -> None:
        while not done.wait(INTERVAL):
            peak.look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()
        peak.look()
