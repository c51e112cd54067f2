"""An event loop whose time goes by at once, so that a busy machine changes nothing."""

import asyncio
import selectors


class VirtualTime(asyncio.SelectorEventLoop):
    """Goes on to the next timer as soon as nothing else is to be done."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Skipping(self))

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._now

    def skip(self, seconds: float) -> None:
        """Let time go by."""
        self._now += seconds


class _Skipping(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTime) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select()
        events = super().select(0)
        if not events:
            self._loop.skip(max(timeout, 0))
        return events
