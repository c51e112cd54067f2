"""Hold bodies of requests in a router until their answers have ended: so many bytes together."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

from unifiedserve.config import EngineConfig
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.server.requests.body import Progress
from unifiedserve.server.requests.encoding import decoded

_MOST_BYTES = 1 << 30


class Bodies:
    """Hold all bodies. Belongs to the router's event loop."""

    def __init__(self, most_bytes: int = _MOST_BYTES, timeout: float = EngineConfig().server.body_timeout) -> None:
        """Hold so many bytes; each body may take `timeout` seconds to come."""
        self.bytes = 0
        self._most_bytes = most_bytes
        self._timeout = timeout

    @contextlib.asynccontextmanager
    async def held(self, request: web.Request) -> AsyncIterator[bytes]:
        """Read a request's body, decompressed, and hold it as long as this lasts.

        Raises RequestError TOO_LARGE for one that can never be held, NO_ROOM for one that cannot beside the others,
        SLOW for one that stalls.
        """
        body = await self._read(request)
        try:
            yield body
        finally:
            self.bytes -= len(body)

    async def _read(self, request: web.Request) -> bytes:
        """Return a body, whose bytes count from now on."""
        pieces, size = list[bytes](), 0
        progress = Progress(self._timeout)
        try:
            self._check(request.content_length or 0)
            async with asyncio.timeout_at(progress.deadline) as end:
                async for piece in decoded(request.content.iter_any(), request.headers.get("content-encoding", "")):
                    self._check(len(piece), size)
                    self.bytes += len(piece)
                    size += len(piece)
                    pieces.append(piece)
                    if progress.came(len(piece)):
                        end.reschedule(progress.deadline)
        except BaseException as error:
            self.bytes -= size
            if isinstance(error, TimeoutError):
                raise progress.late() from None
            raise
        return b"".join(pieces)

    def _check(self, more: int, read: int = 0) -> None:
        if more + read > self._most_bytes:
            raise RequestError(f"the body is larger than {self._most_bytes >> 20} MiB", ErrorKind.TOO_LARGE)
        if self.bytes + more > self._most_bytes:
            raise RequestError("the router holds as many bytes as it may", ErrorKind.NO_ROOM, retry_after=1)
