"""Tell the time of a run."""

import asyncio
import time


class Clock:
    """Count seconds of the monotonic clock since the run began."""

    def __init__(self) -> None:
        self._origin = time.monotonic()

    def now(self) -> float:
        """Return the seconds since the run began."""
        return time.monotonic() - self._origin

    async def sleep_until(self, at: float) -> None:
        """Return at that time, or at once if it has passed."""
        if (seconds := at - self.now()) > 0:
            await asyncio.sleep(seconds)
