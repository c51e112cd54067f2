"""Ends one worker after the other, each at its time, and notes how long it took until all serve again."""

import asyncio
import contextlib
import os
import signal
import time
from random import Random

import httpx
import msgspec

from bench.campaign.cases import Target
from bench.soak.vitals import workers_of

_WHOLE_SECONDS = 60.0
_LOOK = 0.01  # seconds
SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP)


class Kill(msgspec.Struct):
    """A worker that was ended at a monotonic time, and by what; `back`: seconds until all served again."""

    at: float
    worker: str
    signal: str
    back: float | None


class Killer:
    """Chooses a worker and how it ends, from time to time."""

    def __init__(self, pid: int, target: Target, seed: int, every: float) -> None:
        """Do so every so many seconds."""
        self.kills: list[Kill] = []
        self._pid = pid
        self._target = target
        self._random = Random(f"{seed}:kills")
        self._every = every

    async def run(self) -> None:
        """Go on, for ever."""
        while True:
            await asyncio.sleep(self._every)
            workers = workers_of(self._pid)
            name = self._random.choice(sorted(workers))
            self.kills.append(await self._kill(name, workers[name], self._random.choice(SIGNALS)))

    async def _kill(self, name: str, pid: int, number: signal.Signals) -> Kill:
        began = time.monotonic()
        os.kill(pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WHOLE_SECONDS):
                while workers_of(self._pid).get(name) in (None, pid) or not await self._is_healthy():
                    await asyncio.sleep(_LOOK)
                return Kill(began, name, number.name, time.monotonic() - began)
        return Kill(began, name, number.name, None)

    async def _is_healthy(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return (await self._target.http.get("/health")).is_success
        return False
