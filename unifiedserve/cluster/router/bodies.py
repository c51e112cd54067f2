"""Hold bodies of requests in a router until their answers have ended: so many bytes together."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

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
        pieces, size = list[bytes](), 0
        progress = Progress(self._timeout)
        stream = decoded(request.content.iter_any(), request.headers.get("content-encoding", ""))
        try:
            self._check(request.content_length or 0)
            while (piece := await self._next(stream, progress)) is not None:
                self._check(len(piece), size)
                self.bytes += len(piece)
                size += len(piece)
                pieces.append(piece)
            body = b"".join(pieces)
            pieces.clear()  # else it would be held twice
            yield body
        finally:
            self.bytes -= size

    @staticmethod
    async def _next(stream: AsyncGenerator[bytes, None], progress: Progress) -> bytes | None:
        """Return what comes next, None at the end; raises RequestError SLOW where that takes too long."""
        try:
            async with asyncio.timeout_at(progress.deadline):
                piece = await anext(stream, None)
        except TimeoutError:
            raise progress.late() from None
        progress.came(len(piece or b""))
        return piece

    def _check(self, more: int, read: int = 0) -> None:
        if more + read > self._most_bytes:
            raise RequestError(f"the body is larger than {self._most_bytes >> 20} MiB", ErrorKind.TOO_LARGE)
        if self.bytes + more > self._most_bytes:
            raise RequestError("the router holds as many bytes as it may", ErrorKind.NO_ROOM, retry_after=1)
