"""One request and its answer: when each token came, what it cost, and what went wrong."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from chat_server import Exchange, Script, chunk, event, refuse, served, usage
from clocks import ManualClock
from hypothesis import given
from hypothesis import strategies as st
from pieces import http

from unifiedserve.bench.client.answer import spread
from unifiedserve.bench.client.connection import connect
from unifiedserve.bench.client.endpoint import Endpoint
from unifiedserve.bench.records import Record


def new_record() -> Record:
    return Record(request="r", kind="text", due=0.0, sent=0.0)


async def ask(script: Script, clock: ManualClock | None = None) -> Record:
    record = new_record()
    async with served(script) as server, http(server.url) as client:
        await Endpoint(client, clock or ManualClock()).ask(b"{}", record)
    return record


def timed(clock: ManualClock, *moments: tuple[float, bytes]) -> Script:
    """Sends each piece at its time, and the next one when the client has looked at the clock."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        for time, piece in moments:
            clock.time = time
            clock.read.clear()
            await exchange.send(piece)
            await clock.read.wait()
        await exchange.end()

    return script


async def test_every_token_has_the_time_of_the_read_that_brought_it() -> None:
    clock = ManualClock()
    moments = [
        (1.0, chunk("", role="assistant")),
        (2.5, chunk("a", [1])),
        (2.75, chunk("bc", [2, 3]) + chunk("", [4])),
        (9.0, usage(40, 4, cached=16)),
    ]
    record = await ask(timed(clock, *moments), clock)
    assert record.token_times == [2.5, 2.75, 2.75, 2.75]
    assert record.timed == "token"
    assert (record.text, record.answer, record.status, record.error) == ("abc", "chatcmpl-x", 200, None)
    assert (record.prompt_tokens, record.cached_tokens, record.sent, record.ended) == (40, 16, 0.0, 9.0)


async def test_an_event_may_come_in_pieces() -> None:
    clock = ManualClock()
    whole = chunk("a", [1])
    record = await ask(timed(clock, (1.0, whole[:9]), (2.0, whole[9:-1]), (3.0, whole[-1:])), clock)
    assert record.token_times == [2.0]  # a line is complete with its own end, the empty one after it tells nothing


async def test_without_ids_every_chunk_is_a_token() -> None:
    clock = ManualClock()
    moments = [(1.0, chunk("", role="assistant")), (2.0, chunk("a")), (3.0, chunk("b")), (4.0, usage(4, 2))]
    record = await ask(timed(clock, *moments), clock)
    assert (record.token_times, record.timed) == ([2.0, 3.0], "chunk")


async def test_without_ids_the_usage_tells_how_many_tokens_came() -> None:
    clock = ManualClock()
    moments = [(2.0, chunk("aa")), (3.0, chunk("bbbbbbbb")), (4.0, usage(4, 7))]
    record = await ask(timed(clock, *moments), clock)
    assert (record.token_times, record.timed) == ([2.0] * 2 + [3.0] * 5, "characters")


def delta(**fields: Any) -> bytes:
    return event({"id": "chatcmpl-x", "choices": [{"index": 0, "delta": fields}]})


async def test_thoughts_are_tokens_but_no_part_of_what_is_said() -> None:
    clock = ManualClock()
    moments = [
        (1.0, chunk("", role="assistant")),
        (2.0, delta(reasoning_content="Is it (B)?")),
        (3.0, delta(reasoning=" No.", content="C")),
        (4.0, usage(4, 2)),
    ]
    record = await ask(timed(clock, *moments), clock)
    assert (record.text, record.token_times, record.timed) == ("C", [2.0, 3.0], "chunk")


async def test_tool_calls_are_tokens() -> None:
    clock = ManualClock()
    moments = [
        (1.0, delta(role="assistant", content=None)),
        (2.0, delta(tool_calls=[{"index": 0, "id": "a", "type": "function", "function": {"name": "look"}}])),
        (3.0, delta(tool_calls=[{"index": 0, "function": {"arguments": '{"at": 12345}'}}])),
        (4.0, delta()),
        (5.0, usage(4, 6)),
    ]
    record = await ask(timed(clock, *moments), clock)
    assert (record.error, record.text, record.timed) == (None, "", "characters")
    assert record.token_times == [2.0] * 2 + [3.0] * 4


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 90))
def test_tokens_that_are_told_by_characters_are_as_many_as_there_were(lengths: list[int], tokens: int) -> None:
    arrivals = [(float(number), length) for number, length in enumerate(lengths)]
    times, _ = spread(arrivals, tokens)
    assert len(times) == tokens
    assert all(before <= after for before, after in pairwise(times))
    if tokens >= len(lengths):
        assert set(times) == {time for time, _ in arrivals}


async def cut(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.send(chunk("a", [1]))
    exchange.writer.transport.abort()


async def without_an_end(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.send(chunk("a", [1]))
    exchange.writer.write(b"0\r\n\r\n")


async def garbage(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.send(b": a comment\r\n\r\ndata: {oops\r\n\r\n")


async def moved(exchange: Exchange) -> None:
    exchange.writer.write(b"HTTP/1.1 307 X\r\nLocation: https://a/v1\r\nContent-Length: 0\r\n\r\n")


def saying(*pieces: bytes) -> Script:
    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(*pieces)
        await exchange.end()

    return script


async def error_within(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.send(chunk("a", [1]), event({"error": {"message": "a worker died", "code": 500}}))


FAILURES: dict[str, tuple[Script, int | None, str]] = {
    "4xx": (refuse(400, "too long"), 400, "status 400: too long"),
    "5xx": (lambda exchange: exchange.answer(b"<b>bad\ngateway</b>", 502), 502, "status 502: <b>bad gateway</b>"),
    "detail": (lambda exchange: exchange.answer({"detail": "no"}, 404), 404, "status 404: no"),
    "cut": (cut, 200, "Error"),
    "no end": (without_an_end, 200, "the stream ended before the answer did"),
    "garbage": (garbage, 200, "the stream holds what is no chunk of an answer"),
    "error within": (error_within, 200, "a worker died"),
    "flat error within": (saying(chunk("a", [1]), event({"object": "error", "message": "no room"})), 200, "no room"),
    "elsewhere": (moved, 307, "status 307: it is at https://a/v1"),
    "no text": (saying(b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n'), 200, "the stream holds what is no"),
    "too deep": (saying(b'data: {"x": ' + b"[" * 100_000 + b"\n\n"), 200, "the stream holds what is no chunk"),
    "4xx of no text": (lambda exchange: exchange.answer(b'{"error": "\xff"}', 400), 400, "status 400: "),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_is_on_record_with_its_reason(name: str) -> None:
    script, status, reason = FAILURES[name]
    record = await ask(script)
    assert record.status == status
    assert reason in (record.error or "")
    assert "\n" not in (record.error or "")


async def test_the_end_of_a_stream_may_be_without_an_end_of_its_line() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(chunk("a", [1]), b"data: [DONE]")
        exchange.writer.write(b"0\r\n\r\n")

    assert (await ask(script)).error is None


async def test_nothing_is_compressed_on_its_way() -> None:
    async def script(exchange: Exchange) -> None:
        assert exchange.headers["accept-encoding"] == "identity"  # where gzip is taken, a proxy may send that
        await saying(chunk("a", [1]))(exchange)

    assert (await ask(script)).error is None


async def test_what_a_chunk_says_nothing_of_may_be_null() -> None:
    empty = [
        event({"id": None, "choices": None, "usage": {"prompt_tokens": None}}),
        event({"choices": [{"delta": None}]}),
    ]
    record = await ask(saying(empty[0], chunk("a"), empty[1]))
    assert (record.error, record.text, len(record.token_times)) == (None, "a", 1)


async def test_no_connection() -> None:
    async with served(refuse(400, "")) as server:
        url = server.url
    record = new_record()
    async with http(url) as client:
        await Endpoint(client, ManualClock()).ask(b"{}", record)
    assert record.status is None
    assert "ConnectError" in (record.error or "")


async def test_a_server_that_falls_silent_has_failed() -> None:
    async def silent(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(chunk("a", [1]))
        await asyncio.Event().wait()

    async with served(silent) as server, connect(server.url, silence=0.05) as client:
        while True:
            record = new_record()
            await Endpoint(client, ManualClock()).ask(b"{}", record)
            assert record.error == "ReadTimeout"
            if record.token_times:  # else a busy machine was silent before the server was
                break
    assert len(record.token_times) == 1
