"""Bodies of requests as they come in: no more bytes than allowed, alone and together, and none that stalls."""

import asyncio
from collections.abc import AsyncGenerator

from starlette.requests import Request

from unifiedserve.config import MIB
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.server.requests.encoding import decoded

_PATIENCE = 10.0  # seconds in which a body may stall
_LEAST_RATE = 1 << 16  # bytes a second, on average, after that
_TOGETHER = 4  # times the largest body: what all bodies under way may take
_SMALL = 1 << 16  # bytes that each may have whatever the others take


class Bodies:
    """The bodies that are being read, or wait to be parsed: bounded in bytes together, and each in time."""

    def __init__(self, max_bytes: int, timeout: float) -> None:
        self.max_bytes = max_bytes
        self._timeout = timeout
        self._bytes = 0

    async def pieces(self, request: Request) -> AsyncGenerator[bytes]:
        """Yield the body as it comes; raise RequestError 408 if it takes too long, or is too slow."""
        loop = asyncio.get_running_loop()
        begin, received = loop.time(), 0
        stream = _decoded(request)
        while True:
            patience = self._patience(received)
            try:
                async with asyncio.timeout_at(begin + patience):
                    piece = await anext(stream, None)
            except TimeoutError:
                raise self._late(received, patience) from None
            if piece is None:
                return
            received += len(piece)
            yield piece

    async def read(self, request: Request, limit: int) -> "HeldBody":
        """Return a whole body, which counts until it is closed.

        Raises RequestError: 413 above `limit` bytes, 408 as `pieces`, 429 when all together would be too many.
        """
        if announced_length(request) > limit:
            raise too_large(limit)
        held = HeldBody(self)
        try:
            await self._fill(held, request, limit)
        except BaseException:
            held.close()
            raise
        return held

    async def _fill(self, held: "HeldBody", request: Request, limit: int) -> None:
        """Take a body in; what comes keeps the time limit off."""
        begin, patience = asyncio.get_running_loop().time(), self._patience(0)
        try:
            async with asyncio.timeout_at(begin + patience) as end:
                async for piece in _decoded(request):
                    held.take(piece)
                    if len(held.data) > limit:
                        raise too_large(limit)
                    if self._patience(len(held.data)) > patience + 1:
                        patience = self._patience(len(held.data))
                        end.reschedule(begin + patience)
        except TimeoutError:
            raise self._late(len(held.data), patience) from None

    def _patience(self, received: int) -> float:
        """Return the seconds that a body may have taken of which so many bytes have come."""
        return min(self._timeout, _PATIENCE + received / _LEAST_RATE)

    def count(self, size: int) -> None:
        """Count so many bytes more, or less; raise RequestError 429 if there is no room for them."""
        if size > 0 and self._bytes + size > _TOGETHER * self.max_bytes:
            raise RequestError(
                "The server is reading as many large requests as it has memory for; try again later.",
                ErrorKind.BUSY,
                code="too_many_bytes",
                retry_after=int(_PATIENCE),
            )
        self._bytes += size

    def _late(self, received: int, seconds: float) -> RequestError:
        return RequestError(
            f"Of the request's body {received} bytes came in {seconds:.0f} s: that is too slow (see --body-timeout).",
            ErrorKind.SLOW,
            code="request_timeout",
        )


class HeldBody:
    """A body in memory, counted among all that there are until it is closed."""

    def __init__(self, bodies: Bodies) -> None:
        self.data = bytearray()
        self._bodies = bodies
        self._counted = 0

    def take(self, piece: bytes) -> None:
        """Add a piece; raises RequestError as `Bodies.count`."""
        more = len(self.data) + len(piece) - _SMALL - self._counted
        if more > 0:
            self._bodies.count(more)
            self._counted += more
        self.data += piece

    def close(self) -> None:
        """Let go of the memory."""
        self.data = bytearray()
        self._bodies.count(-self._counted)
        self._counted = 0


def _decoded(request: Request) -> AsyncGenerator[bytes]:
    return decoded(request.stream(), request.headers.get("content-encoding", ""))


def announced_length(request: Request) -> int:
    """Return the bytes of the body by its header; 0 if that does not say."""
    length = request.headers.get("content-length", "0")
    return int(length) if length.isdecimal() and len(length) < 20 else 0


def too_large(limit: int) -> RequestError:
    """Return the error of a body of more than `limit` bytes."""
    return RequestError(
        f"The request's body is larger than {limit / MIB:g} MiB: give media by their URLs or upload them "
        "(POST /v1/files), or start the server with more --max-body-mib.",
        ErrorKind.TOO_LARGE,
        code="request_too_large",
    )
