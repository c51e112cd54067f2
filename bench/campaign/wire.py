"""Bytes on sockets, for what keeps to no protocol, and what a server says to them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from bench.campaign.cases import Seen, Target, ViolationError
from bench.campaign.verdict import judge

CLOSED = "closed"  # by the server, without an answer
LEFT = "left"  # by the client
_REFUSED = b"Invalid HTTP request received."  # what is no HTTP: then the connection ends


class Wire(NamedTuple):
    """A connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> bool:
        """Send as much as the server takes; tell whether it took all."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()
            return True
        return False

    async def answer(self, seconds: float) -> Seen:
        """Return the next answer, judged; raises ViolationError, also if nothing happens for so long."""
        try:
            async with asyncio.timeout(seconds):
                return await self._answer()
        except TimeoutError:
            raise ViolationError(f"neither an answer nor an end within {seconds:.0f} s") from None
        except ConnectionError:
            return Seen(CLOSED)

    async def _answer(self) -> Seen:
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise ViolationError(f"half a head: {error.partial[:200]!r}") from None
            return Seen(CLOSED)
        status, headers = _parsed(head)
        if status < 200:
            return await self._answer()
        with contextlib.suppress(asyncio.IncompleteReadError):
            body = await self._body(headers)
            if status == 400 and body == _REFUSED:
                return Seen("400", "no HTTP")
            return judge(status, headers, body)
        return Seen(str(status), "cut off")

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if "chunked" not in headers.get("transfer-encoding", ""):
            length = headers.get("content-length")
            return await (self.reader.read() if length is None else self.reader.readexactly(int(length)))
        body = b""
        while size := int(await self.reader.readline() or b"0", 16):
            body += await self.reader.readexactly(size)
            await self.reader.readline()
        await self.reader.readline()
        return body

    def abort(self) -> None:
        """Leave at once, as a client that was killed."""
        self.writer.transport.abort()


def _parsed(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").rstrip().split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}


@contextlib.asynccontextmanager
async def connected(target: Target) -> AsyncIterator[Wire]:
    """Have a connection, which ends with the context."""
    reader, writer = await asyncio.open_connection(target.host, target.port, limit=1 << 20)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def head(path: str, *headers: str, method: str = "POST", host: str = "localhost") -> bytes:
    """Return a request's head."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
