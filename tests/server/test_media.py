"""data: and file: URLs."""

import base64
import os
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import ScriptedEngine
from scripted_app import connected, question

from unifiedserve.config import EngineConfig
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.media import MediaOptions
from unifiedserve.server.media import base64_text
from unifiedserve.server.media.fetcher import MediaFetcher
from unifiedserve.server.media.file_store import FileStore

OPTIONS = MediaOptions()


def fetcher(**options: object) -> MediaFetcher:
    config = EngineConfig.of(**options)
    return MediaFetcher(config, FileStore(config))


async def refused(url: str, kind: str = "video", **options: object) -> str:
    with pytest.raises(RequestError) as caught:
        await fetcher(**options).fetch(kind, url, OPTIONS)
    assert caught.value.kind is ErrorKind.INVALID
    return caught.value.message


@pytest.mark.parametrize("head", ["data:video/mp4;base64,", "data:;base64,", "DATA:Video/MP4;codecs=avc1;base64,"])
async def test_data_url(head: str) -> None:
    data = Random(0).randbytes(100)
    media = await fetcher().fetch("video", head + base64.b64encode(data).decode(), OPTIONS)
    assert (media.kind, media.data, media.path) == ("video", data, None)


@given(data=st.binary(min_size=1, max_size=200), width=st.integers(1, 80), sizes=st.sampled_from([5, 64, 1 << 20]))
def test_base64_as_people_make_it(data: bytes, width: int, sizes: int) -> None:
    """With line breaks, without padding, in the alphabet of URLs, cut into pieces of any size."""
    plain = base64.b64encode(data).decode()
    lines = "\r\n".join(plain[i : i + width] for i in range(0, len(plain), width))
    urls = base64.urlsafe_b64encode(data).decode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base64_text, "_PIECE", sizes)
        for text in (plain, plain.rstrip("="), lines, f" {lines}\n", urls, urls.rstrip("=")):
            assert base64_text.decoded_bytes(text, 1000) == data


async def test_line_breaks_do_not_count_as_data() -> None:
    lines = base64.encodebytes(bytes(1 << 20)).decode()
    media = await fetcher(max_media_mib=1).fetch("image", f"\ndata:image/png;base64,{lines}\n", OPTIONS)
    assert media.data == bytes(1 << 20)


async def test_percent_encoded_data_url() -> None:
    media = await fetcher().fetch("image", "data:image/png;base64,%2B%2F8%3D", OPTIONS)
    assert media.data == b"\xfb\xff"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("data:", "form"),
        ("data:video/mp4,plain", "form"),
        ("data:video/mp4;base64,", "empty"),
        ("data:video/mp4;base64,@@@", "base64"),
        ("data:video/mp4;base64,AAAAA", "base64"),
        ("data:video/mp4;base64,AA==AAAA", "base64"),
        ("data:video/mp4;base64, \n=\n", "empty"),
        ("data:video/mp4;base64,é", "base64"),
        ("data:image/png;base64,AAAA", "image/png, but its part is for videos"),
        ("", "begin with"),
        ("ftp://example.com/a.mp4", "begin with"),
        ("/etc/passwd", "begin with"),
    ],
)
async def test_bad_url(url: str, reason: str) -> None:
    assert reason in await refused(url)


async def test_data_url_of_the_largest_size_and_one_more() -> None:
    for size in (1 << 20, (1 << 20) - 1):
        url = "data:;base64," + base64.b64encode(bytes(size)).decode()
        media = await fetcher(max_media_mib=1).fetch("video", url, OPTIONS)
        assert len(media.data or b"") == size
    for size in ((1 << 20) + 1, (1 << 20) + 3):
        url = "data:;base64," + base64.b64encode(bytes(size)).decode()
        assert "--max-media-mib" in await refused(url, max_media_mib=1)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder that may be read, beside one that may not."""
    (tmp_path / "open" / "sub").mkdir(parents=True)
    (tmp_path / "open" / "sub" / "a clip.mp4").write_bytes(b"x")
    (tmp_path / "open-but-not").mkdir()
    for secret in (tmp_path / "secret.mp4", tmp_path / "open-but-not" / "secret.mp4"):
        secret.write_bytes(b"secret")
    (tmp_path / "open" / "link.mp4").symlink_to(tmp_path / "secret.mp4")
    (tmp_path / "open" / "good-link.mp4").symlink_to(tmp_path / "open" / "sub" / "a clip.mp4")
    (tmp_path / "open" / "loop").symlink_to(tmp_path / "open" / "loop")
    os.mkfifo(tmp_path / "open" / "fifo")
    return tmp_path / "open"


@pytest.mark.parametrize("host", ["", "localhost"])
async def test_file_url(library: Path, host: str) -> None:
    inside = fetcher(allowed_local_media_path=str(library))
    for name in ("sub/a%20clip.mp4", "good-link.mp4", "sub/../sub/a%20clip.mp4"):
        media = await inside.fetch("video", f"file://{host}{library}/{name}", OPTIONS)
        assert (media.data, media.path) == (None, str(library / "sub" / "a clip.mp4"))


@pytest.mark.parametrize(
    "name",
    ["../secret.mp4", "%2e%2e/secret.mp4", "link.mp4", "../open-but-not/secret.mp4", "/etc/passwd", "..", "../missing"],
)
async def test_file_outside(library: Path, name: str) -> None:
    message = await refused(f"file://{library}/{name}", allowed_local_media_path=str(library))
    assert "outside" in message or "no readable file" in message
    assert "secret" not in message


@pytest.mark.parametrize("name", ["missing.mp4", "sub", "fifo", "loop", "", "a%00b", "%ff", "x" * 5000])
async def test_not_a_readable_file(library: Path, name: str) -> None:
    message = await refused(f"file://{library}/{name}", allowed_local_media_path=str(library))
    assert "file" in message


async def test_file_url_of_another_host(library: Path) -> None:
    url = f"file://server{library}/sub/a%20clip.mp4"
    assert "outside" in await refused(url, allowed_local_media_path=str(library))


async def test_files_are_refused_by_default(library: Path) -> None:
    assert "--allowed-local-media-path" in await refused(f"file://{library}/sub/a%20clip.mp4")


async def test_the_part_at_fault_is_named() -> None:
    engine = ScriptedEngine()
    good = {"type": "image_url", "image_url": {"url": "data:;base64,AAAA"}}
    bad = {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}
    async with connected(engine) as client:
        response = await client.post("/v1/chat/completions", json=question([good, bad]))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages[0].content[1].image_url.url"
    assert engine.requests == []


async def test_media_keep_their_order(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    parts = [{"type": "image_url", "image_url": {"url": f"data:;base64,{'ABCD'[i] * 4}"}} for i in range(4)]
    assert (await client.post("/v1/chat/completions", json=question(parts))).status_code == 200
    payloads = [base64.b64encode(medium.data).decode() for medium in engine.requests[0].media]
    assert payloads == ["AAAA", "BBBB", "CCCC", "DDDD"]


@pytest.mark.parametrize("payload", ["QQ==QUJD", "QUI=QUJD", "QUJDQQ==QUJD"])
async def test_padding_within_the_data_is_refused(payload: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unifiedserve.server.media.base64_text._PIECE", 4)
    assert "base64" in await refused(f"data:image/png;base64,{payload}", "image")


JPEG = "data:video/jpeg;base64,QUJD,\nREVG"
AS_FRAMES = [
    ({"type": "video_url", "video_url": {"url": JPEG}}, 2.0),
    ({"type": "video_url", "video_url": {"url": JPEG, "fps": 5}}, 5.0),
    ({"type": "video", "video": JPEG, "sample_fps": 4}, 4.0),
    ({"type": "video", "video": ["data:;base64,QUJD", "data:image/png;base64,REVG"], "fps": 4}, 4.0),
]


@pytest.mark.parametrize(("part", "fps"), AS_FRAMES)
async def test_frames_are_one_video(
    client: httpx.AsyncClient, engine: ScriptedEngine, part: dict[str, Any], fps: float
) -> None:
    assert (await client.post("/v1/chat/completions", json=question([part]))).status_code == 200
    (medium,) = engine.requests[0].media
    assert (medium.kind, medium.data, medium.frames, medium.fps) == ("video", b"ABCDEF", [3, 3], fps)
    assert medium.options == MediaOptions(num_frames=-1)
    body = question([part], media_io_kwargs={"video": {"fps": 1}})
    assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
    assert engine.requests[1].media[0].options == MediaOptions(fps=1)


async def test_a_rate_beside_a_whole_video_is_how_it_is_looked_at(
    client: httpx.AsyncClient, engine: ScriptedEngine
) -> None:
    part = {"type": "video", "video": "data:video/mp4;base64,QUJD", "fps": 4}
    assert (await client.post("/v1/chat/completions", json=question([part]))).status_code == 200
    (medium,) = engine.requests[0].media
    assert (medium.frames, medium.options) == ([], MediaOptions(fps=4))


async def test_files_and_uploads_may_be_frames(library: Path) -> None:
    engine = ScriptedEngine(allowed_local_media_path=str(library))
    async with connected(engine) as client:
        form = {"file": ("a.png", b"pixels"), "purpose": (None, "vision")}
        uploaded = (await client.post("/v1/files", files=form)).json()["id"]
        part = {"type": "input_video", "video_url": [uploaded, f"file://{library}/good-link.mp4"], "fps": 1}
        body = {"input": [{"role": "user", "content": [part]}]}
        assert (await client.post("/v1/responses", json=body)).status_code == 200
    (medium,) = engine.requests[0].media
    assert (medium.data, medium.frames, medium.fps) == (b"pixelsx", [6, 1], 1)


@pytest.mark.parametrize(
    ("part", "param", "words"),
    [
        ({"type": "video", "video": ["data:;base64,QUJD", "ftp://x"]}, "video[1]", "begin with"),
        ({"type": "video", "video": "data:video/jpeg;base64,QUJD,"}, "video", "empty"),
        ({"type": "video", "video": []}, "video", "length"),
        ({"type": "video", "video": ["data:;base64,QUJD"], "fps": 0}, "fps", "> 0"),
        ({"type": "video", "video": [f"data:;base64,{'A' * 800_000}"] * 2}, "video", "together"),
    ],
)
async def test_faulty_frames_are_named(part: dict[str, Any], param: str, words: str) -> None:
    async with connected(ScriptedEngine(max_media_mib=1)) as client:
        response = await client.post("/v1/chat/completions", json=question([part]))
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == f"messages[0].content[0].{param}"
    assert words in error["message"]


@pytest.mark.parametrize("url", ["data:video/jpeg;base64,QUJD", "data:video/jpeg;a=b;base64,QUJD"])
async def test_frames_in_one_url_are_as_many_as_in_a_list_at_most(url: str) -> None:
    media = fetcher()
    video = await media.fetch("video", url + ",QUJD" * 4095, MediaOptions())
    assert len(video.frames) == 4096
    assert "at most 4096 images" in await refused(url + ",QUJD" * 4096)
    assert "at most 4096 images" in await refused(url + "," * (1 << 20))
