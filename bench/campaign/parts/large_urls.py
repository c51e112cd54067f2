"""URLs that lead to 256 MB each, with and without a length, and to bytes that never end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random

from bench.campaign.asking import CHAT, Request, asks
from bench.campaign.cases import Seen, Target
from bench.campaign.parts.beside import beside
from bench.campaign.parts.media_files import question_at
from bench.campaign.parts.ordinary import image, text

_BYTES = 256_000_000
_PIECE = bytes(1 << 20)
_HEAD = "HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\nConnection: close\r\n"
_STATUSES = (400, 429, 504)  # no video, too many bytes at once, too late


async def large_urls(target: Target, random: Random) -> Seen:
    """Ask about eight large files elsewhere at once."""
    async with _listener() as url:
        requests = [_asks(f"{url}/{way}") for way in ("length", "no-length", "endless", "length") * 2]
        return await beside(target, requests, text(), image(random))


def _asks(url: str) -> Request:
    return asks(CHAT, question_at(url, "video", deadline=60), *_STATUSES)


@contextlib.asynccontextmanager
async def _listener() -> AsyncIterator[str]:
    """Have a server of large files; yield its URL."""
    async with await asyncio.start_server(_serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        asked = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        length = f"Content-Length: {_BYTES}\r\n" if asked == "/length" else ""
        writer.write(f"{_HEAD}{length}\r\n".encode())
        sent = 0
        while sent < _BYTES or asked == "/endless":
            piece = _PIECE if asked == "/endless" else _PIECE[: _BYTES - sent]
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
    writer.close()
