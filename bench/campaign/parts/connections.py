"""Connections that break HTTP, stall, come in crowds, or end at every point."""

import asyncio
import contextlib
import json
from random import Random

from bench.campaign.asking import CHAT, TEXTS, chat
from bench.campaign.cases import Kind, Seen, Target, ViolationError
from bench.campaign.wire import CLOSED, LEFT, Wire, connected, head

_BODY = json.dumps(chat()).encode()
_LONG = json.dumps({**chat(max_tokens=2000, ignore_eos=True, stream=True), "deadline": 60}).encode()
_LENGTH = f"Content-Length: {len(_BODY)}"
_ANSWER_SECONDS = 30.0
_HEAD_SECONDS = 20.0  # somewhat more than a head may take
_CROWD = 400
_PATIENCE = 3.0  # seconds of a client that will leave


async def _odd_head(target: Target, random: Random) -> Seen:
    """Send a head that is no HTTP, or odd HTTP."""
    async with connected(target) as wire:
        await wire.send(random.choice(_ODD_HEADS) + b"\r\n\r\n")
        return await wire.answer(_HEAD_SECONDS)


_ODD_HEADS = [
    b"",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
    b"PRI * HTTP/2.0\r\n\r\nSM",
    b"GET",
    b"GET /",
    b"GET / HTTP/9.9",
    b"GET / HTTP/0.9",
    b"get /health http/1.1\r\nHost: localhost",
    b"GET /health HTTP/1.0",
    b"GET /health HTTP/1.1",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: elsewhere.example",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\n folded: 1",
    b"GET /health HTTP/1.1\r\nHost : localhost",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\rb",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\nY: b",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: \x00",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\n: x",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: \xff\xfe",
    b"GET http://elsewhere.example/health HTTP/1.1\r\nHost: localhost",
    b"GET //elsewhere.example/health HTTP/1.1\r\nHost: localhost",
    b"GET /\xff HTTP/1.1\r\nHost: localhost",
    b"GET /%ff%fe HTTP/1.1\r\nHost: localhost",
    b"GET /%0d%0aX:1 HTTP/1.1\r\nHost: localhost",
    b"GET /debug/trace?request_id=%ff&request_id=1 HTTP/1.1\r\nHost: localhost",
    b"GET /playground/../../../../etc/passwd HTTP/1.1\r\nHost: localhost",
    b"GET /playground/%2e%2e/%2e%2e/config.py HTTP/1.1\r\nHost: localhost",
    b"GET /playground//etc/passwd HTTP/1.1\r\nHost: localhost",
    b"GET /playground/\x00 HTTP/1.1\r\nHost: localhost",
    b"GET /playground/%00 HTTP/1.1\r\nHost: localhost",
    b"GET /playground/" + b"a/" * 4000 + b" HTTP/1.1\r\nHost: localhost",
    b"GET /playground/" + b"a" * 4000 + b" HTTP/1.1\r\nHost: localhost",
    b"CONNECT localhost:22 HTTP/1.1\r\nHost: localhost",
    b"OPTIONS * HTTP/1.1\r\nHost: localhost",
    b"GET ?x HTTP/1.1\r\nHost: localhost",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000,
    b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost",
    b"GET /health HTTP/1.1\r\nHost: localhost" + b"\r\nX: y" * 5000,
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: " + b"x" * 200,
    b"GET /v1/events?viewer=" + b"v" * 5000 + b" HTTP/1.0",
    b"DELETE /v1/files/%ff%00 HTTP/1.1\r\nHost: localhost",
    b"DELETE /v1/files/.. HTTP/1.1\r\nHost: localhost",
]


async def _length_that_lies(target: Target, random: Random) -> Seen:
    """Announce another length than comes, or several, or none that is a number."""
    lies = (
        ("Content-Length: -1",),
        ("Content-Length: +5",),
        ("Content-Length: 1e3",),
        ("Content-Length: 0x10",),
        ("Content-Length: ",),
        ("Content-Length: " + "9" * 30,),
        ("Content-Length: 99999999999",),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 5, 6",),
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: gzip",),
        ("Transfer-Encoding: chunked, chunked",),
        ("Transfer-Encoding: x",),
        ("Content-Length: 5",),
        ("Content-Length: 0",),
        (),
    )
    async with connected(target) as wire:
        await wire.send(head(random.choice((CHAT, "/tokenize", "/v1/files", "/health")), *random.choice(lies)) + _BODY)
        return await wire.answer(_ANSWER_SECONDS)


async def _odd_chunks(target: Target, random: Random) -> Seen:
    """Send a body in chunks of which one is broken; or one that ends early, and the connection with it."""
    chunks = b"%x\r\n%b\r\n" % (len(_BODY), _BODY)
    bad = random.choice(
        (b"zz\r\n", b"-1\r\n", b"f" * 30 + b"\r\n", b"5\r\nabcdefgh\r\n", b"\r\n", b"5;" + b"x" * 70_000)
    )
    async with connected(target) as wire:
        await wire.send(head(CHAT, "Transfer-Encoding: chunked"))
        if random.random() < 0.5:
            await wire.send(chunks[: random.randrange(len(chunks))] + bad)
        else:
            await wire.send(chunks[: random.randrange(len(chunks))])
            wire.writer.write_eof()
        return await wire.answer(_ANSWER_SECONDS)


async def _leaves(target: Target, random: Random) -> Seen:
    """Leave at a point of the request, or of the answer."""
    request = head(random.choice((CHAT, TEXTS, "/v1/files")), f"Content-Length: {len(_LONG)}") + _LONG
    async with connected(target) as wire:
        if random.random() < 0.5:
            await wire.send(request[: random.randrange(len(request))])
            await asyncio.sleep(random.choice((0, 0, 0.01)))
        else:
            await wire.send(request)
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await wire.reader.readexactly(random.choice((1, 10, 200, 1000)))
        wire.abort()
        return Seen(LEFT)


async def _pipelined(target: Target, random: Random) -> Seen:
    """Send several requests at once, and read all answers: none may be mixed up with another."""
    ids = [f"campaign-{random.getrandbits(64):x}" for _ in range(random.randint(2, 20))]
    async with connected(target) as wire:
        await wire.send(b"".join(head("/version", f"X-Request-Id: {id}", method="GET") for id in ids))
        seen = [await wire.answer(_ANSWER_SECONDS) for _ in ids]
    if any(each.status != "200" for each in seen):
        raise ViolationError(f"pipelined requests got {[each.status for each in seen]}")
    return Seen("200")


async def _slow_heads(target: Target, random: Random) -> Seen:
    """Trickle some dozen heads, which must end after their time, and not before other clients are answered."""
    return await _stalled(target, head("/health", method="GET")[:-2], 30)


async def _slow_bodies(target: Target, random: Random) -> Seen:
    return await _stalled(target, head(CHAT, "Content-Length: 100000") + b"{", 24)


async def _stalled(target: Target, begun: bytes, count: int) -> Seen:
    async def one() -> Seen:
        async with connected(target) as wire:
            await wire.send(begun)
            answer = asyncio.ensure_future(wire.answer(_HEAD_SECONDS))
            while not answer.done():
                await wire.send(b"a")
                await asyncio.wait([answer], timeout=0.5)
            return answer.result()

    seen = await asyncio.gather(*(one() for _ in range(count)))
    return Seen(seen[0].status, f"{count} connections")


async def _silent_crowd(target: Target, random: Random) -> Seen:
    """Open hundreds of connections that say nothing; others are answered meanwhile."""
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(_CROWD):
            await stack.enter_async_context(connected(target))
        response = await target.http.get("/version", timeout=10)
    if response.status_code != 200:
        raise ViolationError(f"{response.status_code} beside {_CROWD} silent connections")
    return Seen(LEFT, f"{_CROWD} connections")


async def _unread(target: Target, random: Random) -> Seen:
    """Ask for streams and read nothing of them for a while."""
    request = head(CHAT, f"Content-Length: {len(_LONG)}") + _LONG
    async with contextlib.AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(connected(target)) for _ in range(6)]
        for wire in wires:
            await wire.send(request)
            wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(5)
        for wire in wires:
            wire.abort()
    return Seen(LEFT, "6 streams")


async def _viewers(target: Target, random: Random) -> Seen:
    """Open more viewers of events than may be; the last ones are refused in a proper way."""
    request = head("/v1/events?viewer=campaign", method="GET")
    async with contextlib.AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(connected(target)) for _ in range(80)]
        for wire in wires:
            await wire.send(request)
        heads = await asyncio.gather(*(_status(wire) for wire in wires))
    if set(heads) - {200, 429, 503}:
        raise ViolationError(f"viewers got {set(heads)}")
    return Seen(LEFT, f"{heads.count(200)} of 80 viewers")


async def _status(wire: Wire) -> int:
    async with asyncio.timeout(_ANSWER_SECONDS):
        return int((await wire.reader.readline()).split()[1])


async def _crowd(target: Target, random: Random) -> Seen:
    """Ask for more answers at once than the engine takes: each is a proper one, or a proper refusal."""
    request = head(CHAT, _LENGTH) + _BODY

    async def one() -> str:
        async with connected(target) as wire:
            await wire.send(request)
            return (await wire.answer(80)).status

    seen = await asyncio.gather(*(one() for _ in range(_CROWD)))
    if set(seen) - {"200", "429", "503", "504", CLOSED}:
        raise ViolationError(f"a crowd got {set(seen)}")
    return Seen("200", f"{seen.count('200')} of {_CROWD}")


KINDS = [
    Kind("odd heads", 30, _odd_head),
    Kind("lengths that lie", 12, _length_that_lies),
    Kind("broken chunks", 8, _odd_chunks),
    Kind("clients that leave", 40, _leaves),
    Kind("pipelining", 10, _pipelined),
    Kind("heads that trickle", 0.05, _slow_heads),
    Kind("bodies that trickle", 0.05, _slow_bodies),
    Kind("silent connections", 0.2, _silent_crowd),
    Kind("streams that nobody reads", 0.1, _unread),
    Kind("viewers of events", 0.1, _viewers),
    Kind("a crowd of questions", 0.05, _crowd),
]
