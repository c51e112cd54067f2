"""Read bodies of requests as they come in: no more bytes than allowed, alone and together, and none that stalls."""

import asyncio
import math
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

from starlette.requests import Request

from unifiedserve.config import MIB
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.server.requests.encoding import decoded

_PATIENCE = 10.0  # seconds in which a body must go on
_LEAST_RATE = 1 << 16  # bytes a second, in each of these
_IDLE = 1.0  # seconds without a byte, after which a body makes room for one that comes
_TOGETHER = 4  # times the largest body: what all bodies under way may take
_SMALL = 1 << 16  # bytes that each may have whatever the others take


class Bodies:
    """Hold the bodies that are being read, or wait to be parsed: bounded in bytes together, and each in time."""

    def __init__(self, max_bytes: int, timeout: float) -> None:
        self.max_bytes = max_bytes
        self._timeout = timeout
        self._bytes = 0
        self._coming: dict[HeldBody, asyncio.Timeout] = {}  # in the order of their last bytes

    async def pieces(self, request: Request) -> AsyncGenerator[bytes]:
        """Yield the body as it comes; raise RequestError 408 if it takes too long, or is too slow."""
        progress = Progress(self._timeout)
        stream = _decoded(request)
        while True:
            try:
                async with asyncio.timeout_at(progress.deadline):
                    piece = await anext(stream, None)
            except TimeoutError:
                raise progress.late() from None
            if piece is None:
                return
            progress.came(len(piece))
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
        """Take a body in; bytes that come keep the time limit off."""
        progress = Progress(self._timeout)
        try:
            async with asyncio.timeout_at(progress.deadline) as end:
                async for piece in _decoded(request):
                    if held.gave_way:
                        break
                    self._coming.pop(held, None)
                    self._coming[held] = end
                    held.take(piece)
                    if len(held.data) > limit:
                        raise too_large(limit)
                    if progress.came(len(piece)):
                        end.reschedule(progress.deadline)
        except TimeoutError:
            raise (_gave_way() if held.gave_way else progress.late()) from None
        finally:
            self._coming.pop(held, None)
        if held.gave_way:  # in the very turn in which more came, or its end
            raise _gave_way()

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count so many bytes more for a while, less those that each may have; raises RequestError as `count`."""
        counted = max(size - _SMALL, 0)
        self.count(counted)
        try:
            yield
        finally:
            self.count(-counted)

    def count(self, size: int) -> None:
        """Count so many bytes more, or less.

        Where there is no room for them, bodies that nothing comes of make some. Raises RequestError 429 if none do.
        """
        while size > 0 and self._bytes + size > _TOGETHER * self.max_bytes and self._drop_idle():
            pass
        if size > 0 and self._bytes + size > _TOGETHER * self.max_bytes:
            raise RequestError(
                "The server is reading as many large requests as it has memory for; try again later.",
                ErrorKind.BUSY,
                code="too_many_bytes",
                retry_after=int(_PATIENCE),
            )
        self._bytes += size

    def _drop_idle(self) -> bool:
        """Drop the large body that nothing has come of for longest; return whether there was one."""
        now = asyncio.get_running_loop().time()
        for held, end in self._coming.items():
            if held.last + _IDLE > now:
                return False  # and so it is with those behind it
            if held.is_counted:
                held.give_way()
                del self._coming[held]
                if not end.expired():  # else its time is up in this very turn
                    end.reschedule(now)
                return True
        return False


class Progress:
    """Watch how a body comes in: at each of its deadlines enough must have come since the one before."""

    def __init__(self, timeout: float) -> None:
        self._clock = asyncio.get_running_loop().time
        self._begin = self._since = self._clock()
        self._end = self._begin + timeout
        self._received = self._counted = 0

    @property
    def deadline(self) -> float:
        """Return the time (of the loop) by which more must have come."""
        return min(self._end, self._since + _PATIENCE)

    def came(self, size: int) -> bool:
        """Count bytes; return whether they are enough for another deadline."""
        self._received += size
        if self._received - self._counted < math.ceil(_PATIENCE * _LEAST_RATE):
            return False
        self._counted, self._since = self._received, self._clock()
        return True

    def late(self) -> RequestError:
        """Return the error of a body of which too little has come."""
        seconds = self._clock() - self._begin
        return RequestError(
            f"Of the request's body {self._received} bytes came in {seconds:.0f} s, the last ones too slowly: "
            f"at least {_LEAST_RATE >> 10} KiB/s must come in any {_PATIENCE:g} s (see --body-timeout).",
            ErrorKind.SLOW,
            code="request_timeout",
        )


class HeldBody:
    """Hold a body in memory, counted among all that there are until it is closed."""

    def __init__(self, bodies: Bodies) -> None:
        self.data = bytearray()
        self.gave_way = False
        self.last = 0.0  # the time (of the loop) of the last bytes
        self._bodies = bodies
        self._counted = 0

    def take(self, piece: bytes) -> None:
        """Add a piece; raises RequestError as `Bodies.count`."""
        self.last = asyncio.get_running_loop().time()
        more = len(self.data) + len(piece) - _SMALL - self._counted
        if more > 0:
            self._bodies.count(more)
            self._counted += more
        self.data += piece

    @property
    def is_counted(self) -> bool:
        """Tell whether it takes any of the memory that all bodies have together."""
        return self._counted > 0

    def give_way(self) -> None:
        """Let go of the memory for a body that comes, while this one does not."""
        self.gave_way = True
        self.close()

    def close(self) -> None:
        """Let go of the memory."""
        self.data = bytearray()
        self._bodies.count(-self._counted)
        self._counted = 0


def _decoded(request: Request) -> AsyncGenerator[bytes]:
    return decoded(request.stream(), request.headers.get("content-encoding", ""))


def _gave_way() -> RequestError:
    return RequestError(
        "Nothing came of the request's body for a while, and others needed its memory; send it again.",
        ErrorKind.SLOW,
        code="request_timeout",
    )


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
