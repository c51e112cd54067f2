"""What is sent, to the byte."""

import base64
import contextlib
import json
import mimetypes
import select
import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest
from pieces import NoMedia, bodies, request, turn

from unifiedserve.bench.client.body import Bodies, Wishes, media_paths
from unifiedserve.bench.client.delivery import FileServer, delivered, media_type
from unifiedserve.bench.client.dialects import DIALECTS, dialect_named
from unifiedserve.bench.requests import Expected, Medium, Text, Turn
from unifiedserve.errors import ConfigError


def test_a_text_to_the_byte() -> None:
    assert bodies("vllm").make([turn("hé", 3)], []) == (
        b'{"model":"m","temperature":0,"stream":true,"stream_options":{"include_usage":true},"return_token_ids":true,'
        b'"messages":[{"role":"user","content":"h\xc3\xa9"}],"max_tokens":3,"ignore_eos":true}'
    )


def test_the_same_bytes_in_another_process() -> None:
    program = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from pieces import bodies, turn\n"
        "sys.stdout.buffer.write(bodies('unifiedserve', media={'fps': 2, 'max_pixels': 9}).make([turn('a', 1)], []))"
    )
    paths = [str(Path(__file__).parent), *sys.path]
    other = subprocess.run([sys.executable, "-c", program, *paths], capture_output=True, check=True).stdout
    assert other == bodies("unifiedserve", media={"fps": 2, "max_pixels": 9}).make([turn("a", 1)], [])


def made(dialect: str = "vllm", turns: Any = None, answers: Any = (), **wishes: Any) -> Any:
    return json.loads(bodies(dialect, **wishes).make(turns or [turn()], answers))


def test_a_later_turn_has_all_that_was_said() -> None:
    messages = made(turns=[turn("one"), turn("two"), turn("three")], answers=["first", "second"])["messages"]
    assert [(each["role"], each["content"]) for each in messages] == [
        ("user", "one"),
        ("assistant", "first"),
        ("user", "two"),
        ("assistant", "second"),
        ("user", "three"),
    ]


def test_options_stand_where_the_server_looks_for_them() -> None:
    body = made("vllm", media={"frames": 8, "fps": None, "max_pixels": 50176}, salt="s", extra={"priority": 1})
    assert body["media_io_kwargs"] == {"video": {"num_frames": 8, "max_frames": 8}}
    assert body["mm_processor_kwargs"] == {"max_pixels": 50176}
    assert (body["cache_salt"], body["priority"]) == ("s", 1)


def test_frames_can_be_smaller_than_images(clip: Path) -> None:
    wishes = Wishes(media={"max_pixels": 900}, video={"frames": 4, "frame_pixels": 100})
    picture = Turn(parts=(Medium(kind="image", path=str(clip)),), max_tokens=1)
    with delivered("file", [str(clip)], {}) as media:
        vllm = Bodies("m", DIALECTS["vllm"], media, wishes)
        about_image = json.loads(vllm.make([picture], []))
        about_video = json.loads(vllm.make([with_clip(clip), picture], ["a clip"]))
    assert about_image["mm_processor_kwargs"] == {"max_pixels": 900}
    assert "media_io_kwargs" not in about_image
    assert about_video["mm_processor_kwargs"] == {"max_pixels": 100}
    assert about_video["media_io_kwargs"] == {"video": {"num_frames": 4, "max_frames": 4}}


def test_only_exact_answers_ignore_the_end() -> None:
    assert "ignore_eos" not in made(turns=[turn(exact=False)])
    assert "ignore_eos" not in made("openai")
    assert "return_token_ids" not in made("openai")


@pytest.mark.parametrize(
    ("extra", "exact"), [({"priority": 1}, True), ({"max_tokens": 3}, False), ({"ignore_eos": False}, False)]
)
def test_who_asks_for_another_length_gets_it_without_a_failure(extra: dict[str, Any], exact: bool) -> None:
    assert bodies(extra=extra).exact is exact
    assert bodies("openai", extra=extra).exact is False
    assert extra.items() <= json.loads(bodies(extra=extra).make([turn()], [])).items()


def test_only_choices_are_asked_for_with_log_probabilities() -> None:
    asked = turn(expected=Expected(choices=("a", "b"), right=0))
    assert made(turns=[asked], logprobs=True)["top_logprobs"] == 20
    assert "logprobs" not in made(turns=[asked])
    assert "logprobs" not in made(logprobs=True)


@pytest.mark.parametrize(
    ("dialect", "wishes", "reason"),
    [
        ("sglang", {"media": {"frames": 8}}, "--frames: requests to sglang cannot say that"),
        ("openai", {"media": {"max_pixels": 8}}, "--max-pixels"),
        ("openai", {"video": {"frame_pixels": 8}}, "--frame-pixels"),
        ("unifiedserve", {"salt": "s"}, "--cache-salt: unifiedserve has none"),
    ],
    ids=["frames", "pixels", "frame pixels", "salt"],
)
def test_what_a_server_cannot_be_asked_for(dialect: str, wishes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Bodies("m", DIALECTS[dialect], NoMedia(), Wishes(**wishes))


def test_no_such_dialect() -> None:
    with pytest.raises(ConfigError, match="choose one of unifiedserve, vllm"):
        dialect_named("tgi")


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    path = tmp_path / "a clip.mp4"
    path.write_bytes(bytes(range(256)))
    return path


def with_clip(path: Path, **part: float) -> Turn:
    return Turn(parts=(Medium(kind="video", path=str(path), **part), Text("what?")), max_tokens=1)


def url_sent(path: Path, delivery: str) -> str:
    with delivered(delivery, [str(path)], {}) as media:
        body = json.loads(Bodies("m", DIALECTS["vllm"], media, Wishes()).make([with_clip(path)], []))
        video, text = body["messages"][0]["content"]
        assert (video["type"], text) == ("video_url", {"type": "text", "text": "what?"})
        url: str = video["video_url"]["url"]
        if delivery == "http":
            assert httpx.get(url, trust_env=False).content == path.read_bytes()
            assert httpx.get(url + "x", trust_env=False).status_code == 404
        return url


def test_media_in_the_request(clip: Path) -> None:
    head, _, data = url_sent(clip, "data").partition(",")
    assert head == "data:video/mp4;base64"
    assert base64.b64decode(data) == clip.read_bytes()


def test_media_types_are_the_same_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mimetypes, "guess_type", lambda *_: (None, None))  # what this machine's files say
    names = ("a.webp", "b.JPG", "c.mkv", "d.ts", "e.m4v", "f")
    types = ["image/webp", "image/jpeg", "video/x-matroska", "video/mp2t", "video/mp4", "application/octet-stream"]
    assert list(map(media_type, names)) == types


def test_media_by_path(clip: Path) -> None:
    assert url_sent(clip, "file") == f"file://{clip.parent}/a%20clip.mp4"


def test_media_served_from_here(clip: Path) -> None:
    assert url_sent(clip, "http").endswith("/0.mp4")


def test_many_are_served_at_once() -> None:
    """Of a local connection all is settled in the call that asks for it, though nobody has accepted it yet."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(FileServer(("127.0.0.1", 0), BaseHTTPRequestHandler))
        callers = [stack.enter_context(socket.socket()) for _ in range(64)]
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(server.server_address)
        _, connected, _ = select.select([], callers, [], 0)
        assert len(connected) == len(callers)


def test_media_that_cannot_be_sent(clip: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"gone\.mp4: no such file"),
        delivered("data", [str(clip.parent / "gone.mp4")], {}),
    ):
        pass
    with pytest.raises(ConfigError, match="choose one of auto, file, data, http"), delivered("ftp", [], {}):
        pass
    with pytest.raises(ConfigError, match="part of a file"):
        media_paths([request("r", with_clip(clip, start=1.0, end=2.0))])


def test_media_that_do_not_fit_into_the_memory(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unifiedserve.bench.client.delivery.available_bytes", lambda: 100)
    with pytest.raises(ConfigError, match="--media file"), delivered("data", [str(clip)], {}):
        pass
