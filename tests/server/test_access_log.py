"""What the log says of requests, and what it never does."""

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from scripted import ScriptedEngine, delta, say_words
from scripted_app import question
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unifiedserve.messages.api import Delta, GenerateRequest
from unifiedserve.observe.logs import ACCESS_LOGGER, REQUEST_ID, JsonFormatter
from unifiedserve.observe.otel import CALLERS_TRACE
from unifiedserve.server.access.log import RequestLog
from unifiedserve.server.app import create_app

PATH = "/v1/chat/completions"
KEY = "sk-secret-0123456789"
TEXT = logging.Formatter("%(levelname)s %(name)s: %(message)s")
JSON = JsonFormatter("server")


class Lines(logging.Handler):
    """All that is logged, as text and as JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.json: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.text.append(TEXT.format(record))
        self.json.append(JSON.format(record))

    @property
    def requests(self) -> list[dict[str, object]]:
        parsed = [json.loads(line) for line in self.json]
        return [line for line in parsed if line["logger"] == ACCESS_LOGGER]


async def break_off(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
    yield delta("Hello", 1)
    raise ZeroDivisionError


@pytest.fixture
def lines() -> Iterator[Lines]:
    """All lines, of whatever level."""
    handler, root = Lines(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.setLevel(level)
    root.removeHandler(handler)


@pytest.fixture
def engine(tmp_path: Path) -> ScriptedEngine:
    path = tmp_path / "keys"
    path.write_text(f"anne {KEY}\n")
    return ScriptedEngine(api_key_file=str(path))


@pytest.fixture
async def client(engine: ScriptedEngine) -> AsyncIterator[httpx.AsyncClient]:
    """Talks to the app with a key."""
    app = create_app(engine)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client,
    ):
        yield client


async def test_a_line_a_request(client: httpx.AsyncClient, lines: Lines) -> None:
    response = await client.post(f"{PATH}?token=hidden", json=question(), headers={"X-Request-Id": "mine"})
    (line,) = lines.requests
    assert line["seconds"] >= 0  # type: ignore[operator]
    assert {name: line[name] for name in ("method", "path", "status", "bytes", "caller", "request_id")} == {
        "method": "POST",
        "path": PATH,
        "status": 200,
        "bytes": len(response.content),
        "caller": "anne",
        "request_id": "mine",
    }
    (text,) = [line for line in lines.text if ACCESS_LOGGER in line]
    assert f"POST {PATH} 200" in text
    assert "caller anne, request mine" in text


async def test_a_stream_is_counted_to_its_end(client: httpx.AsyncClient, lines: Lines) -> None:
    response = await client.post(PATH, json=question(stream=True))
    (line,) = lines.requests
    assert (line["status"], line["bytes"]) == (200, len(response.content))


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/none"])
async def test_the_answer_to_head_has_no_bytes(client: httpx.AsyncClient, lines: Lines, path: str) -> None:
    got, head = await client.get(path), await client.head(path)
    assert [line["status"] for line in lines.requests] == [got.status_code, head.status_code]
    assert [line["bytes"] for line in lines.requests] == [len(got.content), 0]


@pytest.mark.parametrize(("status", "counted"), [(200, 3), (204, 0), (304, 0)])
async def test_a_status_without_body_has_no_bytes(lines: Lines, status: int, counted: int) -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status})
        await send({"type": "http.response.body", "body": b"abc"})

    async with httpx.AsyncClient(transport=httpx.ASGITransport(RequestLog(answer)), base_url="http://a") as client:
        await client.get("/")
    assert [line["bytes"] for line in lines.requests] == [counted]


async def test_bytes_for_a_client_that_has_left_are_not_counted(lines: Lines) -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"abc", "more_body": True})
        await receive()
        await send({"type": "http.response.body", "body": b"defg"})

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def nowhere(message: Message) -> None: ...

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": None}
    await RequestLog(answer)(scope, gone, nowhere)
    assert [line["bytes"] for line in lines.requests] == [3]


async def test_nothing_is_logged_unless_asked_for(client: httpx.AsyncClient, lines: Lines) -> None:
    logging.getLogger().setLevel(logging.WARNING)
    await client.post(PATH, json=question())
    assert not lines.requests


async def test_an_answer_the_log_and_the_engine_know_a_request_by_one_id(
    client: httpx.AsyncClient, engine: ScriptedEngine, lines: Lines
) -> None:
    response = await client.post(PATH, json=question())
    id = lines.requests[0]["request_id"]
    assert id
    assert response.headers["x-request-id"] == response.json()["id"] == engine.requests[0].id == f"chatcmpl-{id}"


async def test_an_error_tells_the_id_too(client: httpx.AsyncClient, lines: Lines) -> None:
    response = await client.post(PATH, json={"nonsense": 1})
    assert response.status_code == 400
    assert response.headers["x-request-id"] == lines.requests[0]["request_id"]


@pytest.mark.parametrize("odd", ["no spaces", "host/abc", "x" * 129, ""])
async def test_an_odd_id_is_replaced_and_not_logged(client: httpx.AsyncClient, lines: Lines, odd: str) -> None:
    response = await client.post(PATH, json=question(), headers={"X-Request-Id": odd})
    assert response.status_code == 200
    id = lines.requests[0]["request_id"]
    assert response.headers["x-request-id"] == f"chatcmpl-{id}"
    assert odd != id
    assert not any("host/abc" in line or "no spaces" in line for line in lines.text)


async def test_a_path_cannot_begin_a_line_of_its_own(client: httpx.AsyncClient, lines: Lines) -> None:
    await client.get("/v1/x%0aINFO%20forged")
    assert lines.requests[0]["path"] == "/v1/x%0AINFO%20forged"


async def test_a_crash_is_logged_with_the_id_of_its_request(
    client: httpx.AsyncClient, engine: ScriptedEngine, lines: Lines
) -> None:
    engine.script = break_off
    response = await client.post(PATH, json=question(stream=True), headers={"X-Request-Id": "mine"})
    assert "Internal error" in response.text
    crashes = [json.loads(line) for line in lines.json if "ZeroDivisionError" in line]
    assert [crash["request_id"] for crash in crashes] == ["mine"]


async def test_a_request_that_ends_without_an_answer_failed(lines: Lines) -> None:
    async def crash(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    transport = httpx.ASGITransport(RequestLog(crash))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        with pytest.raises(ZeroDivisionError):
            await client.get("/")
    (line,) = lines.requests
    assert (line["status"], line["bytes"]) == (500, 0)


@pytest.mark.parametrize("key", [KEY, "sk-secret-of-nobody"])
async def test_no_key_is_in_any_line(client: httpx.AsyncClient, engine: ScriptedEngine, lines: Lines, key: str) -> None:
    """Be it right or wrong, the request good, bad, or one that crashes."""
    headers = {"Authorization": f"Bearer {key}"}
    for script in (say_words, break_off):
        engine.script = script
        for body in (question(), question(stream=True), {"nonsense": 1}):
            await client.post(PATH, json=body, headers=headers)
            await client.get("/v1/models", headers={"Cookie": f"unifiedserve-key={key}"})
    assert len(lines.requests) == 12
    assert not any("secret" in line for line in lines.text + lines.json)


async def test_the_callers_trace_goes_on() -> None:
    seen: list[object] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((dict(CALLERS_TRACE.get()), REQUEST_ID.get()))
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    app: ASGIApp = RequestLog(note)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        await client.get("/", headers={"traceparent": "00-a-b-01", "tracestate": "x=y", "X-Request-Id": "mine"})
        await client.get("/", headers={"X-Request-Id": "next"})
    assert seen == [({"traceparent": "00-a-b-01", "tracestate": "x=y"}, "mine"), ({}, "next")]
