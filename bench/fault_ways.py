"""A router that reaches the nodes of a cluster by ways that can be cut: connections stay, and nothing comes through."""

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterable

from unifiedserve.cli.daemon import READY
from unifiedserve.cluster.members import Member, write_membership

_READ = 1 << 16


class Way:
    """Pass bytes on to a server, until it is cut."""

    def __init__(self, url: str) -> None:
        self._host, _, port = url.removeprefix("http://").rpartition(":")
        self._port = int(port)
        self._open = asyncio.Event()
        self._open.set()
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        """Listen on a free port; return the URL there."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Let nothing through, neither on present connections nor on new ones."""
        self._open.clear()

    def mend(self) -> None:
        """Let new connections through; those of before are broken."""
        for connection in self._connections:
            connection.cancel()
        self._open.set()

    def close(self) -> None:
        """End it."""
        self.mend()
        if self._server:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._connections.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            try:
                await self._open.wait()
                there, back = await asyncio.open_connection(self._host, self._port)
                try:
                    await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
                finally:
                    back.transport.abort()
            finally:
                self._connections.discard(task)
                writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(_READ):
            await self._open.wait()
            writer.write(piece)
            await writer.drain()
        raise ConnectionResetError("the other side has closed")


class FarRouter:
    """Tell a router of nodes, each by a way of its own."""

    def __init__(self, process: Process, url: str) -> None:
        self._process = process
        self._ways: dict[str, tuple[Way, str]] = {}  # with its URL, by that of the node
        self.url = url

    async def know(self, nodes: Iterable[Member]) -> None:
        """Have the router know these nodes."""
        members = list[Member]()
        for node in nodes:
            if node.url not in self._ways:
                way = Way(node.url)
                self._ways[node.url] = way, await way.start()
            members.append(Member(name=node.name, pool=node.pool, url=self._ways[node.url][1]))
        assert self._process.stdin
        self._process.stdin.write(write_membership(members))
        await self._process.stdin.drain()

    def way(self, url: str) -> Way:
        """Return the way to a node."""
        return self._ways[url][0]

    def close(self) -> None:
        """Close all ways."""
        for way, _ in self._ways.values():
            way.close()


@contextlib.asynccontextmanager
async def far_router() -> AsyncIterator[FarRouter]:
    """Start a router that knows no nodes yet, and end it."""
    command = [sys.executable, "-m", "unifiedserve.cli", "router", "--nodes=-", "--port=0"]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert process.stdout
    url = ""
    while not url:
        if match := READY.match((await process.stdout.readline()).decode().rstrip("\n")):
            url = match[1]
    far = FarRouter(process, url)
    try:
        yield far
    finally:
        far.close()
        process.send_signal(signal.SIGTERM)
        await process.wait()
