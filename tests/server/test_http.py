"""HTTP as its standard has it: HEAD, whole URLs as targets, compressed bodies, and what may be asked of a path."""

import asyncio
import gzip
import json
import zlib
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from chat_requests import PATH, TEXT
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import error_of
from scripted import ScriptedEngine
from scripted_app import connected, listening, question

from unifiedserve.server.requests.encoding import decoded

JSON = {"content-type": "application/json"}


# HEAD and methods


@pytest.mark.parametrize(
    "path", ["/", "/v1/models", "/health", "/metrics", "/docs", "/openapi.json", "/playground/app.js"]
)
async def test_head_is_get_without_a_body(url: str, path: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        got, head = await client.get(path), await client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == got.headers["content-type"]
    if path != "/metrics":
        assert head.headers["content-length"] == str(len(got.content))


async def test_head_of_a_stream_ends(engine: ScriptedEngine) -> None:
    async with listening(engine) as url, httpx.AsyncClient(base_url=url) as client:
        head = await client.head("/v1/events")
        assert head.headers["content-type"].startswith("text/event-stream")
        while engine.live.watched:
            await asyncio.sleep(0.01)


async def test_a_wrong_method_is_told_all_that_there_are(client: httpx.AsyncClient) -> None:
    response = await client.put("/v1/files/file-x")
    assert response.status_code == 405
    assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD", "DELETE"}


# What clients look up


async def test_a_model_by_its_name(engine: ScriptedEngine) -> None:
    engine.model_name = "maker/model-1"
    async with (
        listening(engine) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        model = await client.models.retrieve("maker/model-1")
        assert (model.id, model.object) == ("maker/model-1", "model")
        assert [each async for each in client.models.list()] == [model]
        async with httpx.AsyncClient(base_url=url) as plain:
            assert (await plain.get("/v1/models/maker/model-1")).json()["id"] == model.id
        with pytest.raises(openai.NotFoundError, match="gpt-4"):
            await client.models.retrieve("gpt-4")


async def test_an_uploaded_file_can_be_looked_up(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        file = await client.files.create(file=("a.png", b"pixels"), purpose="vision")
        assert await client.files.retrieve(file.id) == file
        await client.files.delete(file.id)
        with pytest.raises(openai.NotFoundError):
            await client.files.retrieve(file.id)


# Whole URLs


async def send(url: str, head: str) -> bytes:
    reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
    writer.write(f"{head}\r\nConnection: close\r\n\r\n".encode())
    try:
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("target", ["{url}/v1/models", "HTTP://localhost/v1/models?a=b", "{url}/health", "{url}"])
async def test_a_target_may_be_a_whole_url(url: str, target: str) -> None:
    answer = await send(url, f"GET {target.format(url=url)} HTTP/1.1\r\nHost: elsewhere")
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_a_whole_url_counts_as_the_host(url: str) -> None:
    answer = await send(url, "GET http://elsewhere.example/v1/models HTTP/1.1\r\nHost: localhost")
    assert answer.startswith(b"HTTP/1.1 403 ")


# Compressed bodies


def raw(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


def zipped(data: bytes) -> bytes:
    """Return gzip without the time, which the names of tests may not have."""
    return gzip.compress(data, mtime=0)


HALVES = [b'{"messages": [{"role": "user", ', b'"content": "hi"}]}']
ENCODED = [
    ("gzip", zipped(b"".join(HALVES))),
    ("gzip", b"".join(map(zipped, HALVES))),
    ("X-GZIP", zipped(b"".join(HALVES))),
    ("deflate", zlib.compress(b"".join(HALVES))),
    ("deflate", raw(b"".join(HALVES))),
    ("identity", b"".join(HALVES)),
]


@pytest.mark.parametrize(("encoding", "body"), ENCODED, ids=range(len(ENCODED)))
async def test_a_compressed_body_is_read(client: httpx.AsyncClient, encoding: str, body: bytes) -> None:
    response = await client.post(PATH, content=body, headers={**JSON, "content-encoding": encoding})
    assert response.status_code == 200, response.text
    assert response.json()["choices"][0]["message"]["content"] == TEXT


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip", b"{}"), ("gzip", zipped(b"{}" * 99)[:-9]), ("deflate", b"?")],
    ids=["no gzip", "gzip cut off", "no deflate"],
)
async def test_faulty_data_is_named(client: httpx.AsyncClient, encoding: str, body: bytes) -> None:
    response = await client.post(PATH, content=body, headers={**JSON, "content-encoding": encoding})
    assert response.status_code == 400
    assert f"not valid {encoding}" in error_of(response)["message"]


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
async def test_other_encodings_are_named(client: httpx.AsyncClient, encoding: str) -> None:
    response = await client.post(PATH, content=b"{}", headers={**JSON, "content-encoding": encoding})
    assert response.status_code == 415
    assert encoding in error_of(response)["message"]
    assert "gzip" in error_of(response)["message"]


async def test_what_a_body_becomes_is_bounded() -> None:
    bomb = gzip.compress(json.dumps(question("x" * (3 << 20))).encode())
    assert len(bomb) < 10_000
    async with connected(ScriptedEngine(max_body_mib=1)) as client:
        response = await client.post(PATH, content=bomb, headers={**JSON, "content-encoding": "gzip"})
        assert response.status_code == 413
        form = {"content-type": "multipart/form-data; boundary=x", "content-encoding": "br"}
        assert (await client.post("/v1/files", content=b"", headers=form)).status_code == 415


@settings(max_examples=50)
@given(parts=st.lists(st.binary(max_size=300).map(lambda part: part * 3000), max_size=3), data=st.data())
async def test_any_cutting_decodes_to_the_same(parts: list[bytes], data: st.DataObject) -> None:
    body = b"".join(map(gzip.compress, parts))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))

    async def pieces() -> Any:
        for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
            yield body[start:end]

    blocks = [block async for block in decoded(pieces(), "gzip")]
    assert b"".join(blocks) == b"".join(parts)
    assert max(map(len, blocks), default=0) <= 1 << 18
