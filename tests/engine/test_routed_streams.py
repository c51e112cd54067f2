"""A router in front of a real engine, one way to which breaks off: the client has all of a stream, nothing twice."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest

pytest.importorskip("aiohttp", reason="routers need unifiedserve[cluster]")

from daemon import Daemon
from served_router import served
from streamed_answers import ASKED, shown

from unifiedserve.cluster.members import Member, Membership
from unifiedserve.cluster.router.app import Router
from unifiedserve.cluster.routing import Policy
from unifiedserve.server.answers.marks import HEADER

_SAME = {"X-Request-Id": "one"}
_READ = 1 << 16


class BreakingWay:
    """A TCP proxy to a server: the answer to a question breaks off after so many bytes."""

    def __init__(self, port: int, size: int) -> None:
        self._port = port
        self._size = size
        self.broken = 0
        self.connections: list[asyncio.Task[None] | None] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        self.connections.append(asyncio.current_task())
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        asked = asyncio.Event()
        answering = asyncio.create_task(self._answer(there, writer, asked))
        with contextlib.suppress(ConnectionError):
            while question := await reader.read(_READ):
                if question.startswith(b"POST"):
                    asked.set()
                back.write(question)
        back.transport.abort()
        await answering

    async def _answer(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: asyncio.Event) -> None:
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < self._size and (piece := await there.read(_READ)):
                writer.write(piece[: self._size - sent] if asked.is_set() else piece)
                sent += len(piece) if asked.is_set() else 0
        self.broken += asked.is_set()
        writer.close()  # what was written still goes out


@contextlib.asynccontextmanager
async def routed(url: str, way: BreakingWay) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of a router that first goes by a way which breaks off, and then to the server itself."""

    async def never() -> AsyncIterator[Membership]:
        for none in list[Membership]():
            yield none

    proxy = await asyncio.start_server(way.serve, "127.0.0.1")
    broken = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    router = Router(Policy.ROUND_ROBIN, never())
    async with router.running(), served(router) as base, httpx.AsyncClient(base_url=base, timeout=60) as client:
        members = [Member(name=name, pool="p", url=each) for name, each in (("broken", broken), ("whole", url))]
        for known in (members[:1], members):
            router.nodes.follow(known)
            while not all(node.takes_requests for node in router.nodes.each()):
                await router.nodes.wait(1)
        yield client
    proxy.close()
    await asyncio.gather(*filter(None, way.connections))


@pytest.mark.daemon("answers that begin on another server")
@pytest.mark.parametrize("asked", ASKED)
async def test_a_stream_is_whole_wherever_it_breaks_off(daemon: Daemon, asked: str) -> None:
    path, body = ASKED[asked]

    def seen(answer: httpx.Response) -> list[str]:
        events = list(map(str, shown(answer.content.split(b"\n\n"))))
        return sorted(events) if asked in ("two sampled choices", "texts") else events  # which come in any order

    async with httpx.AsyncClient() as direct:
        whole = await direct.post(daemon.url + path, json=body, headers={**_SAME, HEADER: "1"})
    for size in (1, len(whole.content) // 3, len(whole.content) * 2 // 3):
        way = BreakingWay(int(daemon.url.rsplit(":", 1)[1]), size)
        async with routed(daemon.url, way) as client:
            answer = await client.post(path, json=body, headers=_SAME)
        assert way.broken == 1
        assert seen(answer) == seen(whole)
    daemon.wait_idle()
