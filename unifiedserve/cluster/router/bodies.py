"""Hold bodies of requests in a router until their answers have ended: so many bytes together."""

import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

from unifiedserve.errors import ErrorKind, RequestError

_MOST_BYTES = 1 << 30


class Bodies:
    """Hold all bodies. Belongs to the router's event loop."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self.bytes = 0
        self._most_bytes = most_bytes

    @contextlib.asynccontextmanager
    async def held(self, request: web.Request) -> AsyncIterator[bytes]:
        """Read a request's body, and hold it as long as this lasts.

        Raises RequestError TOO_LARGE for one that can never be held, NO_ROOM for one that cannot beside the others.
        """
        pieces, size = list[bytes](), 0
        try:
            self._check(request.content_length or 0)
            async for piece in request.content.iter_any():
                self._check(len(piece), size)
                self.bytes += len(piece)
                size += len(piece)
                pieces.append(piece)
            body = b"".join(pieces)
            pieces.clear()  # else it would be held twice
            yield body
        finally:
            self.bytes -= size

    def _check(self, more: int, read: int = 0) -> None:
        if more + read > self._most_bytes:
            raise RequestError(f"the body is larger than {self._most_bytes >> 20} MiB", ErrorKind.TOO_LARGE)
        if self.bytes + more > self._most_bytes:
            raise RequestError("the router holds as many bytes as it may", ErrorKind.NO_ROOM, retry_after=1)
