"""How a daemon is, looked at every few seconds: the memory and the open files of its processes, and pages in use."""

import asyncio
import contextlib
import time
from pathlib import Path

import httpx
import msgspec
import psutil

from bench.campaign.cases import Target
from bench.campaign.daemon import used_pages
from bench.campaign.watch import sizes_of
from bench.serve_cpu.memory import family

_INTERVAL = 5.0  # seconds
_SHARED_MEMORY = Path("/dev/shm")


class Process(msgspec.Struct):
    """A process: its memory in bytes, open files and threads.

    `rss` is resident, `pss` proportional; pages of shared buffers count in both once the process has touched
    them, though they are taken from the start. `own` is what it has beside them.
    """

    name: str
    rss: int
    pss: int
    own: int
    descriptors: int
    threads: int


class Look(msgspec.Struct):
    """The processes by their ids, the pages in use by buffer, and the bytes of shared memory, at a monotonic time."""

    at: float
    processes: dict[int, Process]
    pages: dict[str, float]
    shared: int


class Vitals:
    """All looks at a daemon so far."""

    def __init__(self, pid: int, target: Target) -> None:
        self.looks: list[Look] = []
        self._pid = pid
        self._target = target

    async def run(self) -> None:
        """Look, for ever."""
        while True:
            with contextlib.suppress(httpx.HTTPError):  # of a daemon that has ended, which is somebody else's finding
                self.looks.append(await self.look())
            await asyncio.sleep(_INTERVAL)

    async def look(self) -> Look:
        """Return how the daemon is now."""
        pages = await used_pages(self._target)
        processes = await asyncio.to_thread(processes_of, self._pid)
        return Look(time.monotonic(), processes, pages, shared_memory(self._pid))


def processes_of(pid: int) -> dict[int, Process]:
    """Return a process and all that it started, without those that end meanwhile."""
    found = {}
    for process in family(pid):
        with contextlib.suppress(psutil.Error, OSError, KeyError):
            name, sizes = "us:api" if process.pid == pid else process.name(), sizes_of(process.pid)
            found[process.pid] = Process(
                name,
                sizes["Rss"],
                sizes["Pss"],
                sizes["Pss_Anon"],
                process.num_fds(),
                process.num_threads(),
            )
    return found


def workers_of(pid: int) -> dict[str, int]:
    """Return the process ids of a daemon's workers, by their names."""
    names = {process.name(): process.pid for process in family(pid) if process.name().startswith("us:")}
    return {name: pid for name, pid in names.items() if name != "us:zygote"}


def shared_memory(pid: int) -> int:
    """Return the bytes of a daemon's segments of shared memory."""
    return sum(file.stat().st_blocks * 512 for file in _SHARED_MEMORY.glob(f"*{pid}-*"))
