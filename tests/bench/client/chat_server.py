"""A chat endpoint that follows a script, over a real socket: the bytes that it sends are the test's."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

MODELS = {"data": [{"id": "m", "owned_by": "vllm"}]}


@dataclass
class Exchange:
    """A request, and what is answered to it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def answer(self, body: Any, status: int = 200) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        self.writer.write(head.encode() + content)
        await self.writer.drain()

    async def begin(self) -> None:
        self.writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        await self.writer.drain()

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await self.writer.drain()

    async def end(self) -> None:
        await self.send(b"data: [DONE]\n\n")
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()


Script = Callable[[Exchange], Awaitable[None]]


@dataclass
class ChatServer:
    """Runs `script` for every chat request; what else is asked for is in `pages`, answered with 200 or its status."""

    script: Script
    pages: dict[str, bytes] = field(default_factory=lambda: {"/v1/models": json.dumps(MODELS).encode()})
    statuses: dict[str, int] = field(default_factory=dict)
    seen: list[Exchange] = field(default_factory=list)
    others: list[Exchange] = field(default_factory=list)  # than chat requests
    port: int = 0
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def die(self) -> None:
        """Refuse connections from now on, and break those that there are."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            exchange = await _read(reader, writer)
            if exchange.path == "/v1/chat/completions":
                self.seen.append(exchange)
                await self.script(exchange)
            else:
                self.others.append(exchange)
                known = exchange.path in self.pages
                content = self.pages.get(exchange.path, b"no such page")
                await exchange.answer(content, self.statuses.get(exchange.path, 200 if known else 404))
        self._writers.discard(writer)
        writer.close()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange:
    request, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path, _ = request.split()
    return Exchange(method, path, headers, body, writer)


@contextlib.asynccontextmanager
async def served(script: Script, **pages: bytes) -> AsyncIterator[ChatServer]:
    server = ChatServer(script)
    server.pages |= {f"/{name}": content for name, content in pages.items()}
    await server.start()
    try:
        yield server
    finally:
        await server.die()


def chunk(text: str | None = None, ids: list[int] | None = None, *, role: str | None = None, **fields: Any) -> bytes:
    """A chunk of an answer as a server-sent event."""
    delta = {name: value for name, value in {"role": role, "content": text}.items() if value is not None}
    choice = {"index": 0, "delta": delta} | ({} if ids is None else {"token_ids": ids})
    return event({"id": "chatcmpl-x", "choices": [choice], **fields})


def usage(prompt: int, completion: int, cached: int = 0) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return event(
        {"id": "chatcmpl-x", "choices": [], "usage": counts | {"prompt_tokens_details": {"cached_tokens": cached}}}
    )


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


async def say(exchange: Exchange) -> None:
    """As many tokens as were asked for."""
    await exchange.begin()
    count = exchange.json["max_tokens"]
    await exchange.send(chunk("", role="assistant"), *(chunk("x", [7]) for _ in range(count)), usage(5, count))
    await exchange.end()


def refuse(status: int, message: str) -> Script:
    """The same error for everybody."""
    return lambda exchange: exchange.answer({"error": {"message": message}}, status)
