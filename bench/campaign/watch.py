"""The daemon's processes and their memory, looked at all the while."""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import NamedTuple

from bench.serve_cpu.memory import family

_INTERVAL = 2.0  # seconds


class Sample(NamedTuple):
    """The memory of all processes at a time of the monotonic clock, in bytes.

    `whole` is their proportional set size, in which the shared buffers count as far as they were ever used; `own` is
    what each process has for itself.
    """

    at: float
    whole: int
    own: dict[str, int]


class Watch:
    """What was seen of a daemon."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.workers = self._alive()
        self.samples: list[Sample] = []
        self.changes: list[tuple[float, str]] = []

    async def run(self) -> None:
        """Look, for ever."""
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(_INTERVAL)

    def look(self) -> Sample:
        """Take a sample and note workers that came or went."""
        whole, own = 0, {}
        for process in family(self._pid):
            sizes = sizes_of(process.pid)
            whole += sizes.get("Pss", 0)
            own[f"{process.name()} {process.pid}"] = sizes.get("Pss_Anon", 0)
        self.samples.append(Sample(time.monotonic(), whole, own))
        now = self._alive()
        if now != self.workers:
            self.changes.append((time.monotonic(), f"{sorted(set(self.workers.values()))} were replaced or ended"))
            self.workers = now
        return self.samples[-1]

    @property
    def decoders(self) -> list[int]:
        """The processes that decode."""
        return [pid for pid, name in self.workers.items() if name.startswith(("us:decode", "us:language"))]

    def _alive(self) -> dict[int, str]:
        """Return the workers by their process ids; short-lived ones, which try grammars out, are none."""
        return {process.pid: process.name() for process in family(self._pid) if _is_worker(process.name())}


def sizes_of(pid: int) -> dict[str, int]:
    """Return the sizes of a process in bytes, by the kernel's names; none if it has ended."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        return {name: int(size.split()[0]) << 10 for name, _, size in (line.partition(":") for line in lines)}
    return {}


def _is_worker(name: str) -> bool:
    return name.startswith(("us:vision", "us:encode", "us:decode", "us:language"))
