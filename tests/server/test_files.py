"""Uploaded files: how messages name them, how large and how many they may be, and that they go."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import openai
import pytest
from scripted import ScriptedEngine

MIB = 1 << 20
FORM = (
    b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nvision\r\n'
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\npixels\r\n--x--\r\n'
)


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(max_media_mib=1)


async def upload(client: httpx.AsyncClient, data: bytes, **form: str) -> httpx.Response:
    return await client.post("/v1/files", data={"purpose": "vision", **form}, files={"file": ("clip.mp4", data)})


def form_headers(charset: str) -> dict[str, str]:
    return {"Content-Type": f"multipart/form-data; boundary=x; charset={charset}"}


async def asked(client: httpx.AsyncClient, id: str) -> httpx.Response:
    part = {"type": "video_url", "video_url": {"url": id}}
    return await client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": [part]}]})


async def test_a_file_is_named_by_its_id_in_messages(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    data = bytes(range(256)) * 4096  # of the largest size
    file = (await upload(client, data)).json()
    assert (file["object"], file["bytes"], file["filename"], file["purpose"]) == ("file", MIB, "clip.mp4", "vision")
    for _ in range(2):
        assert (await asked(client, file["id"])).status_code == 200
    assert [media.data for request in engine.requests for media in request.media] == [data, data]


@pytest.mark.parametrize(
    ("name", "type", "kind"),
    [
        ("clip.mp4", "application/octet-stream", "video"),
        ("shot.png", "", "image"),
        ("shot", "IMAGE/PNG", "image"),
        ("clip.png", "video/mp4", "video"),
    ],
)
async def test_a_part_of_type_file_is_what_its_upload_was_called(
    client: httpx.AsyncClient, engine: ScriptedEngine, name: str, type: str, kind: str
) -> None:
    form = {"data": {"purpose": "vision"}, "files": {"file": (name, b"data", type)}}
    id = (await client.post("/v1/files", **form)).json()["id"]  # type: ignore[arg-type]
    chat = {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": id}}]}]}
    items = {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": id}]}]}
    for path, body in (("/v1/chat/completions", chat), ("/v1/responses", items)):
        response = await client.post(path, json=body)
        assert response.status_code == 200, response.text
    assert [(media.kind, media.data) for request in engine.requests for media in request.media] == [(kind, b"data")] * 2


@pytest.mark.parametrize(("name", "type"), [("clip", "video/mp4"), ("clip.mp4", "application/octet-stream")])
async def test_a_part_of_type_file_has_its_data_inline(
    client: httpx.AsyncClient, engine: ScriptedEngine, name: str, type: str
) -> None:
    file = {"filename": name, "file_data": f"data:{type};base64,ZGF0YQ=="}
    chat = {"messages": [{"role": "user", "content": [{"type": "file", "file": file}]}]}
    items = {"input": [{"role": "user", "content": [{"type": "input_file", **file}]}]}
    for path, body in (("/v1/chat/completions", chat), ("/v1/responses", items)):
        response = await client.post(path, json=body)
        assert response.status_code == 200, response.text
    assert [(media.kind, media.data) for request in engine.requests for media in request.media] == [
        ("video", b"data")
    ] * 2


@pytest.mark.parametrize(
    ("file", "status", "words"),
    [
        ({"file_id": "file-0"}, 404, "upload it"),
        ({"filename": "a.png"}, 400, "either `file_id` or `file_data`"),
        ({"file_data": "data:application/pdf;base64,ZGF0YQ=="}, 400, "application/pdf"),
        ({"file_data": "ZGF0YQ=="}, 400, "neither an image nor a video"),
    ],
)
async def test_a_part_of_type_file_that_is_no_medium(
    client: httpx.AsyncClient, file: dict[str, str], status: int, words: str
) -> None:
    chat = {"messages": [{"role": "user", "content": [{"type": "file", "file": file}]}]}
    response = await client.post("/v1/chat/completions", json=chat)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (status, "messages[0].content[0].file")
    assert words in error["message"]


async def test_openais_client_uploads_and_deletes(url: str, tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").write_bytes(b"video")
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        file = await client.files.create(file=tmp_path / "clip.mp4", purpose="vision")
        assert (file.bytes, file.filename) == (5, "clip.mp4")
        assert (await client.files.delete(file.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await client.files.delete(file.id)


async def test_a_file_that_is_gone_is_a_clear_error(client: httpx.AsyncClient) -> None:
    id = (await upload(client, b"video")).json()["id"]
    assert (await client.delete(f"/v1/files/{id}")).json() == {"id": id, "object": "file", "deleted": True}
    response = await asked(client, id)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (404, "file_not_found")
    assert error["param"] == "messages[0].content[0].video_url.url"


async def test_old_files_make_room_for_new_ones(client: httpx.AsyncClient) -> None:
    first, second, *_ = [(await upload(client, bytes(MIB))).json()["id"] for _ in range(4)]
    assert (await asked(client, first)).status_code == 200  # used, so that it is the second's turn to go
    assert (await upload(client, b"one more")).status_code == 200
    assert (await asked(client, first)).status_code == 200
    assert (await asked(client, second)).status_code == 404


async def test_too_large_is_refused_before_it_is_sent(url: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)
    writer.write(
        b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2147483648\r\n"
        b"Content-Type: multipart/form-data; boundary=x\r\n\r\n"
    )
    assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
    await reader.readuntil(b"\r\n\r\n")
    assert b"The file is larger than 1 MiB" in await reader.readuntil(b"}}")
    writer.close()


async def test_too_large_is_refused_without_a_length(client: httpx.AsyncClient) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="clip.mp4"\r\n\r\n'
        for _ in range(2):
            yield bytes(MIB)
        raise AssertionError("read to the end")

    response = await client.post(
        "/v1/files", content=body(), headers={"Content-Type": "multipart/form-data; boundary=x"}
    )
    assert response.status_code == 413


@pytest.mark.parametrize(
    ("form", "status", "word"),
    [
        ({"files": {"file": ("a.mp4", b"")}, "data": {"purpose": "vision"}}, 400, "empty"),
        ({"files": {"file": ("a.mp4", b"a")}}, 400, "`purpose`"),
        ({"files": {"clip": ("a.mp4", b"a")}, "data": {"purpose": "vision"}}, 400, "`file`"),
        ({"content": b"video", "headers": {"Content-Type": "video/mp4"}}, 415, "multipart/form-data"),
        ({"content": b"video", "headers": {"Content-Type": "multipart/form-data"}}, 400, "malformed"),
        ({"content": b"video", "headers": {"Content-Type": "multipart/form-data; boundary=x"}}, 400, "malformed"),
    ],
)
async def test_bad_forms(client: httpx.AsyncClient, form: dict[str, object], status: int, word: str) -> None:
    response = await client.post("/v1/files", **form)  # type: ignore[arg-type]
    assert response.status_code == status
    assert word in response.json()["error"]["message"]


@pytest.mark.parametrize("charset", ["undefined", "punycode", "idna", "utf-16", "nonsense"])
async def test_forms_in_odd_character_sets_are_refused(client: httpx.AsyncClient, charset: str) -> None:
    response = await client.post("/v1/files", content=FORM, headers=form_headers(charset))
    assert response.status_code == 415
    assert charset in response.json()["error"]["message"]


@pytest.mark.parametrize("charset", ["UTF-8", "us-ascii", "ISO-8859-1"])
async def test_forms_may_name_their_character_set(client: httpx.AsyncClient, charset: str) -> None:
    response = await client.post("/v1/files", content=FORM, headers=form_headers(charset))
    assert response.status_code == 200
    assert response.json()["purpose"] == "vision"


async def test_pages_of_other_sites_may_not_upload(client: httpx.AsyncClient) -> None:
    files = {"file": ("clip.mp4", b"video")}
    for origin, status in (("https://elsewhere.example", 403), ("null", 403), ("http://localhost", 200)):
        response = await client.post("/v1/files", data={"purpose": "vision"}, files=files, headers={"Origin": origin})
        assert response.status_code == status
