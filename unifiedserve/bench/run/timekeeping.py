"""Measure how well the client keeps time. It must not report its own lateness as the server's."""

import asyncio
import time
from collections.abc import Iterable

import numpy as np

from unifiedserve.bench.client.clock import Clock
from unifiedserve.bench.records import Record, Timing

_TICK = 0.05  # seconds
_LATE = 0.02  # seconds after its due time at which one of a hundred requests may be sent
_BUSY = 0.85  # share of the one core that an event loop has
_APART, _APART_SHARE = 0.02, 0.02  # seconds and share by which the client's TTFT may differ from the server's


class Timekeeper:
    """Measure the event loop's lateness and this process's part of a core, while it runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._late: list[float] = []
        self._began = clock.now(), time.process_time()
        self._cpu: float | None = None

    async def run(self) -> None:
        """Measure until cancelled; work after that does not count."""
        try:
            while True:
                at = self._clock.now() + _TICK
                await asyncio.sleep(_TICK)
                self._late.append(self._clock.now() - at)
        finally:
            self._cpu = self._cpu_so_far()

    def timing(self, records: Iterable[Record], ttft: tuple[float, float] | None) -> Timing:
        """Return the measured times, the requests' lateness, and the mean TTFT here and there."""
        late = [record.sent - record.due for record in records] or [0.0]
        p50, p99, largest = np.percentile(late, [50, 99, 100]).tolist()
        return Timing(
            late_p50=p50,
            late_p99=p99,
            late_max=largest,
            loop_late_p99=float(np.percentile(self._late or [0.0], 99)),
            cpu=self._cpu_so_far() if self._cpu is None else self._cpu,
            ttft_here=ttft and ttft[0],
            ttft_there=ttft and ttft[1],
        )

    def _cpu_so_far(self) -> float:
        """Return the share of a core that this process has taken."""
        began, used = self._began
        return (time.process_time() - used) / max(self._clock.now() - began, 1e-9)


def cautions(timing: Timing) -> list[str]:
    """Say what speaks against trusting the figures of a run."""
    found = []
    if timing.late_p99 > _LATE:
        found.append(
            f"requests were sent late, by {timing.late_p99:.3f} s at p99: "
            "this client cannot send at the rate that was asked for; take a lower rate or an idler machine"
        )
    if timing.cpu > _BUSY:
        found.append(f"the client took {timing.cpu:.0%} of a core: its own work may delay what it measures")
    if timing.loop_late_p99 > _LATE:
        found.append(f"times of tokens are off by up to {timing.loop_late_p99:.3f} s at p99: this machine is too busy")
    if timing.ttft_here is not None and timing.ttft_there is not None:
        here, there = timing.ttft_here, timing.ttft_there
        if abs(here - there) > max(_APART_SHARE * there, _APART):
            found.append(
                f"the mean TTFT is {here:.3f} s here and {there:.3f} s by the server: "
                "the difference is this machine's, the network's, or what the server does not count"
            )
    return found
