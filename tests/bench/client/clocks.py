"""A clock that goes as a test says."""

import asyncio

from unifiedserve.bench.client.clock import Clock


class ManualClock(Clock):
    """Stands still until it is set; who sleeps is woken at once, at the time it asked for."""

    def __init__(self) -> None:
        self.time = 0.0
        self.read = asyncio.Event()

    def now(self) -> float:
        self.read.set()
        return self.time

    async def sleep_until(self, at: float) -> None:
        self.time = max(self.time, at)
        await asyncio.sleep(0)
