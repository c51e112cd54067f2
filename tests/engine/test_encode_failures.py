"""What a text node does when encode nodes fail, one after the other or together."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from flashcodec.layouts import PatchLayout

from unifiedserve.engine.encoding import asking as asking_module
from unifiedserve.engine.encoding import remote as remote_module
from unifiedserve.engine.encoding.asking import Asking, NodeError
from unifiedserve.engine.encoding.remote import RemoteEncoding
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.errors import RequestError
from unifiedserve.messages.encoding import EncodedUnit, Features, line_of
from unifiedserve.messages.load import EncodeNode
from unifiedserve.messages.media import MediaPlan, Source
from unifiedserve.messages.pages import PageOffer, Pages
from unifiedserve.messages.wire import MediaSource

R = TypeVar("R")

IMAGES = 4
FEATURES: Any = Features(model="m", version="v", dtype="float32", width=1, page_tokens=1)


def images(where: Source) -> list[MediaSource]:
    plan = MediaPlan(
        kind="image",
        frame_indices=(0,),
        layout=PatchLayout(28, 28, 14, 2),
        units=1,
        patches_per_unit=4,
        tokens_per_unit=1000,
    )
    return [MediaSource(plan=plan, name="an image", first_unit=n, where=where) for n in range(IMAGES)]


def active_of(sources: list[MediaSource], nodes: int) -> ActiveRequest:
    """Return what is known of a request with these media, for which so many nodes are named."""
    named = [EncodeNode(f"http://node-{number}", 0) for number in range(nodes)]
    prompt = SimpleNamespace(token_ids=[1], media=[source.plan for source in sources])
    request = SimpleNamespace(encode_nodes=named, priority=0)
    record = SimpleNamespace(
        id="one",
        sources=sources,
        planned=SimpleNamespace(request=request, prompt=prompt),
        contents=None,
        stale=False,
        callers_trace={},
        lost_nodes={},
        encode_rounds=0,
    )
    return cast(ActiveRequest, record)


class FailingNodes:
    """Nodes that all fail when they are asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def units(self, url: str, active: ActiveRequest, wanted: Sequence[int]) -> AsyncGenerator[EncodedUnit, None]:
        self.asked += 1
        await asyncio.sleep(0.001)
        raise NodeError(f"{url} is down")
        yield


async def test_shares_that_fail_together_wait_for_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_module, "_PAUSE", 0.2)
    nodes, failed = FailingNodes(), asyncio.get_running_loop().create_future()
    active = active_of(images(Source()), IMAGES)
    remote = RemoteEncoding(cast(Asking, nodes), active, lambda unit: None, failed.set_result)
    began = asyncio.get_running_loop().time()
    remote.begin(range(IMAGES))
    error: RequestError = await failed
    assert "no node encodes" in error.message
    assert asyncio.get_running_loop().time() - began >= 2 * 0.2
    assert nodes.asked >= 3 * IMAGES


async def test_a_node_that_reads_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(asking_module, "_SILENCE_SECONDS", 0.3)
    medium = tmp_path / "medium"
    medium.write_bytes(bytes(16 << 20))
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    asking = Asking(FEATURES, "key")
    active = active_of(images(Source(path=str(medium))), 1)
    with pytest.raises(NodeError):
        await anext(asking.units(url, active, [0]))
    await asking.close()
    ended.set()
    server.close()


class OneUnit:
    """A node that encodes a unit, and holds it until it is let go."""

    def __init__(self) -> None:
        self.holds = 0
        self.let_go = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
        line = line_of(EncodedUnit(0, PageOffer("encode", "address", visual=Pages((1,), (1,)))))
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(line), line))
        self.holds += 1
        await reader.read()
        self.holds -= 1
        self.let_go.set()
        writer.close()


async def outside_tasks(call: Callable[[], R]) -> R:
    """Return what a call from the loop returns. Workers' messages are handled so."""
    result: asyncio.Future[R] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: result.set_result(call()))
    return await result


async def test_a_request_that_is_over_before_a_node_is_asked_asks_none() -> None:
    nodes = FailingNodes()
    remote = RemoteEncoding(cast(Asking, nodes), active_of(images(Source()), 1), not_called, not_called)
    remote.begin([0])
    remote.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not remote.is_under_way
    assert nodes.asked == 0


async def break_off_after(turns: int, asking: Asking, active: ActiveRequest) -> None:
    """Have a unit encoded and read, and break off so many turns of the loop later."""
    here = asyncio.Event()

    def begin() -> RemoteEncoding:
        remote = RemoteEncoding(asking, active, lambda unit: here.set(), not_called)
        remote.begin([0])
        return remote

    remote = await outside_tasks(begin)
    await here.wait()
    remote.read(0)
    for _ in range(turns):
        await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(remote.close)


def not_called(told: object) -> None:
    pytest.fail(str(told))


async def test_a_request_that_ends_while_its_last_unit_is_let_go_leaves_nothing_behind(tmp_path: Path) -> None:
    """Breaking off at any turn of the loop must not break off the closing of the connection."""
    medium = tmp_path / "medium"
    medium.write_bytes(b"an image")
    node, asking = OneUnit(), Asking(FEATURES, "key")
    server = await asyncio.start_server(node.serve, "127.0.0.1", 0)
    active = active_of(images(Source(path=str(medium)))[:1], 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    active.planned.request.encode_nodes.append(EncodeNode(url, 0))
    for turns in range(30):
        await break_off_after(turns, asking, active)
        await node.let_go.wait()
        node.let_go.clear()
    assert node.holds == 0
    await asking.close()
    server.close()
