"""A body that is refused early: its client sees the answer, however it sends, and cannot send for ever."""

import asyncio
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx
import pytest
from scripted import ScriptedEngine
from scripted_app import listening

from unifiedserve.server import parting

BODY = json.dumps({"prompt": "x" * 20_000_000}).encode()
JSON = {"Content-Type": "application/json"}


def by_urllib(url: str) -> int:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, BODY, JSON))
    with refused.value as error:
        assert b"request_too_large" in error.read()
        return error.code


def by_http_client(url: str) -> int:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    connection.request("POST", urlsplit(url).path, BODY, {**JSON, "Connection": "close"})
    response = connection.getresponse()
    assert b"request_too_large" in response.read()
    connection.close()
    return response.status


def by_httpx(url: str) -> int:
    with httpx.Client() as client:
        status = client.post(url, content=BODY, headers=JSON).status_code
        assert client.get(url.replace("/v1/completions", "/health")).status_code == 200
    return status


@pytest.mark.parametrize("ask", [by_urllib, by_http_client, by_httpx])
async def test_clients_see_that_a_body_is_too_large(url: str, ask: Callable[[str], int]) -> None:
    for _ in range(3):
        assert await asyncio.to_thread(ask, f"{url}/v1/completions") == 413


HEAD = (
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 900000000\r\n"
)
BOUNDS = ["_SILENCE_SECONDS", "_MOST_SECONDS", "_MOST_BYTES"]


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"])
@pytest.mark.parametrize("bound", BOUNDS)
async def test_what_is_thrown_away_is_bounded(monkeypatch: pytest.MonkeyPatch, bound: str, more: bytes) -> None:
    """By silence, for a client that stops; by seconds and by bytes, for one that goes on. One bound at a time."""
    for each in BOUNDS:
        monkeypatch.setattr(parting, each, 1e9)
    monkeypatch.setattr(parting, bound, 1 << 20 if bound == "_MOST_BYTES" else 0.3)
    async with listening(ScriptedEngine()) as url:
        reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
        writer.write(HEAD + more + b"\r\n")
        assert b" 413 " in await reader.readuntil(b"\r\n")
        await asyncio.sleep(0.9 if bound == "_SILENCE_SECONDS" else 0)
        with pytest.raises(ConnectionError):
            await send_on(writer, 100_000 if bound == "_MOST_BYTES" else 1000)
        writer.close()


async def send_on(writer: asyncio.StreamWriter, size: int) -> None:
    while True:
        writer.write(b" " * size)
        await writer.drain()
        await asyncio.sleep(0.01)


async def test_other_faults_that_end_a_connection_are_seen(url: str) -> None:
    reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n" + b" " * 10_000_000)
    assert b" 400 " in await reader.readuntil(b"\r\n")
    writer.close()
