"""What a client sees of a failing engine, and what the engine sees of a client that leaves."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from scripted import ScriptedEngine, delta, never_end
from scripted_app import connected, listening, question

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.api import Delta, GenerateRequest
from unifiedserve.server.app import create_app

PATH = "/v1/chat/completions"


async def refuse(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
    raise RequestError("The prompt is too long.", param="messages", code="context_length_exceeded")
    yield delta("never", 1)


async def refuse_busy(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
    raise RequestError("The engine is full.", ErrorKind.UNAVAILABLE)
    yield delta("never", 1)


async def break_down(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
    yield delta("Well", 1)
    raise RequestError("A worker died.", ErrorKind.INTERNAL)


async def have_a_bug(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
    yield delta("Well", 1)
    raise KeyError("secret detail")


async def never_begin(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
    await asyncio.Event().wait()
    yield delta("never", 1)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("script", "status"), [(refuse, 400), (refuse_busy, 503)])
async def test_error_before_the_first_token_is_a_status(stream: bool, script: object, status: int) -> None:
    async with connected(ScriptedEngine(script)) as client:
        response = await client.post(PATH, json=question(stream=stream))
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert response.json()["error"]["message"].startswith("The ")


@pytest.mark.parametrize(("script", "message"), [(break_down, "A worker died."), (have_a_bug, "Internal error")])
async def test_error_in_a_stream_is_its_last_event(script: object, message: str) -> None:
    async with connected(ScriptedEngine(script)) as client:
        response = await client.post(PATH, json=question(stream=True))
    *_, text, last, rest = response.text.split("\n\n")
    assert (response.status_code, rest) == (200, "")
    assert json.loads(text.removeprefix("data: "))["choices"][0]["delta"] == {"content": "Well"}
    error = json.loads(last.removeprefix("data: "))["error"]
    assert error["message"].startswith(message)
    assert error["type"] == "server_error"
    assert "secret" not in response.text


async def test_a_bug_is_a_500_without_details() -> None:
    async with connected(ScriptedEngine(have_a_bug)) as client:
        response = await client.post(PATH, json=question())
        assert response.status_code == 500
        assert response.json()["error"]["type"] == "server_error"
        assert "secret" not in response.text
        assert (await client.get("/health")).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("script", [never_begin, never_end])
async def test_client_that_leaves_aborts_its_request(stream: bool, script: object) -> None:
    engine = ScriptedEngine(script)
    async with listening(engine) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps(question(stream=stream)).encode()
        head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        if stream and script is never_end:
            await reader.readuntil(b"Well")
        else:
            await engine.busy.wait()
        writer.close()
        await engine.idle.wait()
        assert engine.running == 0
        assert engine.events == ["start", "abort"]
        async with httpx.AsyncClient(base_url=url) as client:
            assert (await client.get("/health")).status_code == 200


@pytest.mark.parametrize("path", [PATH, "/tokenize", "/detokenize"])
async def test_client_that_leaves_within_its_body_is_no_failure(path: str) -> None:
    """What an app raises, uvicorn logs as an error with its traceback."""
    incoming = [{"type": "http.request", "body": b'{"mess', "more_body": True}, {"type": "http.disconnect"}]
    sent: list[Any] = []
    headers = [(b"content-type", b"application/json"), (b"content-length", b"100"), (b"host", b"localhost")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}

    async def receive() -> Any:
        return incoming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    engine = ScriptedEngine()
    await create_app(engine)(scope, receive, send)
    assert sent[0]["status"] == 499
    assert engine.requests == []


async def test_client_that_stays_is_not_aborted() -> None:
    engine = ScriptedEngine()
    async with listening(engine) as url, httpx.AsyncClient(base_url=url) as client:
        for stream in (True, False):
            assert (await client.post(PATH, json=question(stream=stream))).status_code == 200
    assert engine.events == ["start", "stop"]
