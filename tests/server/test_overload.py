"""Clients that stall, flood or come in crowds: they get short, right answers, and others are served meanwhile."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx
import pytest
from scripted import ScriptedEngine, say_words
from scripted_app import connected, listening, question
from starlette.requests import Request
from virtual_time import VirtualTime

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.api import Delta, GenerateRequest
from unifiedserve.server import connections, parting
from unifiedserve.server.media import file_store
from unifiedserve.server.requests import body, parse

PATH = "/v1/chat/completions"
HEAD = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
MIB = 1 << 20


def address(url: str) -> tuple[str, int]:
    parsed = httpx.URL(url)
    assert parsed.port is not None
    return parsed.host, parsed.port


async def stalled(url: str, announced: int, sent: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection whose client has sent so much of its body, and sends no more."""
    reader, writer = await asyncio.open_connection(*address(url))
    writer.write(HEAD % (PATH.encode(), announced) + b" " * sent)
    await writer.drain()
    return reader, writer


async def answers(url: str) -> bool:
    async with httpx.AsyncClient(base_url=url) as client:
        return (await client.post(PATH, json=question())).status_code == 200


# Bodies


async def test_a_body_that_stalls_is_given_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "_PATIENCE", 0.2)
    reader, writer = await stalled(url, MIB, 1000)
    response = await reader.readuntil(b"\r\n")
    assert b" 408 " in response
    assert b"1000 bytes came" in await reader.readuntil(b"}}")
    writer.close()


async def test_a_body_that_trickles_is_given_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "_PATIENCE", 0.2)
    reader, writer = await stalled(url, MIB, 0)
    answer = asyncio.ensure_future(reader.readuntil(b"\r\n"))
    while not answer.done():
        writer.write(b" ")
        await asyncio.wait([answer], timeout=0.02)
    assert b" 408 " in answer.result()
    writer.close()


def test_a_body_that_is_slow_but_steady_is_taken() -> None:
    piece = bytes(body._LEAST_RATE)
    pieces = int(body._PATIENCE) * 3

    async def receive() -> dict[str, Any]:
        nonlocal pieces
        pieces -= 1
        await asyncio.sleep(0.99)
        return {"type": "http.request", "body": piece, "more_body": pieces > 0}

    async def taken() -> int:
        bodies = body.Bodies(MIB, 600)
        return len((await bodies.read(Request({"type": "http", "headers": []}, receive), 100 * MIB)).data)

    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        assert runner.run(taken()) == int(body._PATIENCE) * 3 * len(piece)


async def test_a_large_body_that_stalls_has_no_more_patience_than_a_small_one(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "_PATIENCE", 0.3)
    monkeypatch.setattr(body, "_LEAST_RATE", 1000)
    reader, writer = await stalled(url, 64 * MIB, 48 * MIB)
    assert b" 408 " in await reader.readuntil(b"\r\n")
    writer.close()


async def test_a_body_that_nothing_comes_of_makes_room_for_one_that_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "_PATIENCE", 600)
    monkeypatch.setattr(body, "_IDLE", 0)
    async with listening(ScriptedEngine(max_body_mib=1)) as url:
        clients = [await stalled(url, MIB, MIB - 1) for _ in range(4)]
        heads = [asyncio.ensure_future(reader.readuntil(b"\r\n\r\n")) for reader, _ in clients]
        async with httpx.AsyncClient(base_url=url) as client:
            large = await client.post(PATH, json=question("x" * (MIB - 1000)))
        assert large.status_code == 200
        (done,), others = await asyncio.wait(heads, return_when=asyncio.FIRST_COMPLETED)
        assert b" 408 " in done.result()
        assert len(others) == 3
        for _, writer in clients:
            writer.close()
        await asyncio.wait(others)
        with contextlib.suppress(asyncio.IncompleteReadError):
            await asyncio.gather(*others)


class Sender:
    """A client that sends its body when it is told to."""

    def __init__(self, first: bytes) -> None:
        self._messages = asyncio.Queue[dict[str, Any]]()
        self.send(first)

    def send(self, piece: bytes, *, more: bool = True) -> None:
        self._messages.put_nowait({"type": "http.request", "body": piece, "more_body": more})

    def read_by(self, bodies: body.Bodies) -> "asyncio.Task[body.HeldBody]":
        request = Request({"type": "http", "headers": []}, self._messages.get)
        return asyncio.create_task(bodies.read(request, 2 * MIB))


async def full() -> tuple[body.Bodies, list[Sender], "list[asyncio.Task[body.HeldBody]]"]:
    """Return bodies that have no room for another large one, and clients that send no more."""
    bodies, senders = body.Bodies(MIB, 600), [Sender(bytes(MIB)) for _ in range(4)]
    reading = [sender.read_by(bodies) for sender in senders]
    await asyncio.sleep(0.001)
    return bodies, senders, reading


async def end_all(reading: "list[asyncio.Task[body.HeldBody]]") -> None:
    for task in reading:
        task.cancel()
    await asyncio.wait(reading)


@pytest.mark.parametrize("last", [0, 1, MIB])
def test_a_body_that_gives_way_while_more_comes_is_not_taken_for_a_whole_one(last: int) -> None:
    async def reason() -> str:
        bodies, senders, reading = await full()
        await asyncio.sleep(2 * body._IDLE)
        reading.append(Sender(bytes(MIB)).read_by(bodies))
        senders[0].send(bytes(last), more=False)  # both go on in the next turn, one after the other
        with pytest.raises(RequestError) as caught:
            await reading[0]
        await end_all(reading)
        return caught.value.message

    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        assert "others needed its memory" in runner.run(reason())


def test_a_body_whose_time_is_up_as_another_one_needs_room_is_no_error_of_that() -> None:
    async def taken() -> int:
        bodies, _, reading = await full()
        other = Sender(b"")
        late = other.read_by(bodies)
        await asyncio.sleep(0)
        due = next(iter(bodies._coming.values())).when()
        assert due is not None
        asyncio.get_running_loop().call_at(due - 1e-10, lambda: other.send(bytes(MIB), more=False))  # in one turn
        size = len((await late).data)
        await end_all(reading)
        return size

    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        assert runner.run(taken()) == MIB


async def test_large_bodies_together_are_bounded_and_small_ones_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "_PATIENCE", 600)
    monkeypatch.setattr(body, "_IDLE", 600)
    async with listening(ScriptedEngine(max_body_mib=1)) as url:
        clients = [await stalled(url, MIB, MIB - 1) for _ in range(5)]
        heads = [asyncio.ensure_future(reader.readuntil(b"\r\n\r\n")) for reader, _ in clients]
        done, others = await asyncio.wait(heads, return_when=asyncio.FIRST_COMPLETED)
        (head,) = [head.result().lower() for head in done]
        assert b" 429 " in head
        assert b"retry-after: " in head
        assert len(others) == 4
        assert await answers(url)
        for _, writer in clients:
            writer.close()
        await asyncio.wait(others)
        with contextlib.suppress(asyncio.IncompleteReadError):
            await asyncio.gather(*others)


async def test_an_endless_body_is_cut_off(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parting, "_MOST_BYTES", 32 * MIB)
    reader, writer = await asyncio.open_connection(*address(url))
    status = asyncio.ensure_future(reader.readuntil(b"\r\n"))
    writer.write(HEAD.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked") % PATH.encode())
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < 1024 * MIB:
            writer.write(b"100000\r\n" + b" " * MIB + b"\r\n")
            await writer.drain()
            sent += MIB
    assert 64 * MIB <= sent < 1024 * MIB
    assert b" 413 " in await status


@pytest.mark.parametrize(
    "field",
    [
        b'"messages": [' + b"{}, " * 300_000 + b"{}]",
        b'"messages": [], "x": [' + b"1," * 2_100_000 + b"1]",
        b'"' + b"n" * 20_000_000 + b'": 1',
        b'"model": "' + b"m" * 20_000_000 + b'"',
    ],
    ids=["messages", "numbers", "name", "model"],
)
async def test_large_nonsense_is_refused_in_few_words(client: httpx.AsyncClient, field: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    response = await client.post(PATH, content=b"{" + field + b"}", headers=headers)
    assert response.status_code in (400, 404, 413)
    assert len(response.content) < 1000


@pytest.mark.parametrize(
    "text",
    [
        '{"messages": [], "messages": []}',
        '{"messages": [{"role": "user", "content": "a", "content": "b"}]}',
        '{"a": 1, "\\u0061": 2}',
    ],
)
def test_a_name_that_comes_twice_is_an_error(text: str) -> None:
    with pytest.raises(RequestError, match="comes twice") as refused:
        parse.parse(text.encode(), parse.ModelRequest)
    assert refused.value.code == "invalid_json"


# A full house


async def test_a_full_house_says_when_to_come_back_before_it_reads(engine: ScriptedEngine) -> None:
    engine.full = RequestError("busy", ErrorKind.BUSY, retry_after=7)

    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        pytest.fail("the body was read")

    async with connected(engine) as client:
        response = await client.post(PATH, content=never(), headers={"Content-Type": "application/json"})
        assert (response.status_code, response.headers["retry-after"]) == (429, "7")
        assert response.json()["error"]["type"] == "rate_limit_error"
        assert (await client.post("/tokenize", json={"prompt": "a"})).status_code == 200


async def test_too_many_uploads_come_back_later(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        under_way = []
        for _ in range(file_store._MOST_UPLOADS):
            _, writer = await asyncio.open_connection(*address(url))
            writer.write(
                b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
                b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
            )
            under_way.append(writer)
        while (response := await client.post("/v1/files", files={"file": b"x"})).status_code != 429:
            assert response.status_code == 400  # the form lacks its purpose
        assert response.headers["retry-after"]
        assert response.json()["error"]["type"] == "rate_limit_error"
        for writer in under_way:
            writer.close()


async def test_many_small_files_make_room_for_each_other(client: httpx.AsyncClient) -> None:
    ids = []
    for number in range(file_store._MOST_FILES + 1):
        form = {"data": {"purpose": "vision"}, "files": {"file": str(number).encode()}}
        ids.append((await client.post("/v1/files", **form)).json()["id"])  # type: ignore[arg-type]
    statuses = [(await client.delete(f"/v1/files/{id}")).status_code for id in ids]
    assert statuses == [404] + [200] * file_store._MOST_FILES


# Connections


async def test_silent_connections_make_room_for_new_ones() -> None:
    async with listening(ScriptedEngine(), connections=8) as url:
        silent = [await asyncio.open_connection(*address(url)) for _ in range(20)]
        assert await answers(url)
        assert await silent[0][0].read() == b""  # the oldest were closed
        for _, writer in silent:
            writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HT"])
async def test_a_head_that_does_not_come_ends_the_connection(
    url: str, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_HEAD_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection(*address(url))
    writer.write(sent)
    assert await reader.read() == b""
    writer.close()


async def test_what_takes_long_is_no_silence(url: str, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_HEAD_SECONDS", 1.0)

    async def slowly(request: GenerateRequest) -> AsyncGenerator[Delta]:
        await asyncio.sleep(1.1)
        async for delta in say_words(request):
            yield delta

    engine.script = slowly
    async with httpx.AsyncClient(base_url=url, limits=httpx.Limits(max_connections=1)) as client:
        for _ in range(2):
            assert (await client.post(PATH, json=question())).status_code == 200


async def test_a_client_that_reads_nothing_is_left(
    url: str, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_UNREAD_SECONDS", 0.2)

    async def endless(request: GenerateRequest) -> AsyncGenerator[Delta]:
        while True:
            yield Delta(index=0, text="word " * 10_000, token_ids=[1], prompt_tokens=1, generated_tokens=1)
            await asyncio.sleep(0)

    engine.script = endless
    reader, writer = await asyncio.open_connection(*address(url), limit=1024)
    asked = json.dumps(question(stream=True)).encode()
    writer.write(HEAD % (PATH.encode(), len(asked)) + asked)
    await engine.busy.wait()
    await engine.idle.wait()
    assert engine.events[-1] == "abort"
    writer.close()
    del reader
