"""End a connection whose client still sends. Closed at once, it would be reset, and its answer be lost."""

import asyncio
from collections.abc import Callable
from typing import Any

_SILENCE_SECONDS = 3.0
_MOST_SECONDS = 30.0
_MOST_BYTES = 256 << 20


class Rest:
    """Count what is thrown away of an unwanted body, and call `end` at a bound.

    It ends after some silence, after some time, and after so many bytes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> None:
        self._loop = loop
        self._end = end
        self._bytes = 0
        self._last = loop.call_later(_MOST_SECONDS, end)
        self._silence = loop.call_later(_SILENCE_SECONDS, end)

    def count(self, size: int) -> None:
        """Note that so many bytes more were thrown away."""
        self._bytes += size
        self._silence.cancel()
        if self._bytes > _MOST_BYTES:
            self._end()
        else:
            self._silence = self._loop.call_later(_SILENCE_SECONDS, self._end)

    def cancel(self) -> None:
        """Stop waiting."""
        self._last.cancel()
        self._silence.cancel()


class PartingTransport:
    """Ask `parting` before closing a transport. If that is true, it stops writing, and is closed later."""

    def __init__(self, transport: asyncio.Transport, parting: Callable[[], bool]) -> None:
        self._transport = transport
        self._parting = parting
        self._parted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Tell whether nothing more is to be written."""
        return self._parted or self._transport.is_closing()

    def close(self) -> None:
        """Close it when all is written and the client's present sending is done."""
        if self.is_closing():
            return
        if not self._parting():
            self._transport.close()
            return
        self._parted = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
