"""Media that cannot be served: one clear 400 each, and the engine goes on."""

import io
import random
from pathlib import Path
from typing import Any

import openai
import pytest
from daemon import Daemon
from media import data_url, text_part
from PIL import Image

pytestmark = pytest.mark.daemon("what goes wrong in a worker becomes a 400, and the engine goes on")


def part(kind: str, data: bytes) -> dict[str, Any]:
    return {"type": f"{kind}_url", f"{kind}_url": {"url": data_url(f"{kind}/x", data)}}


def noise(image_format: str) -> bytes:
    """An image that takes many bytes for its size, cut off in the middle."""
    file = io.BytesIO()
    Image.frombytes("RGB", (64, 64), random.Random(0).randbytes(64 * 64 * 3)).save(file, image_format)
    return file.getvalue()[: file.tell() // 2]


def wide_image() -> bytes:
    file = io.BytesIO()
    Image.new("L", (100_000, 4)).save(file, "PNG")
    return file.getvalue()


def ask(daemon: Daemon, *parts: dict[str, Any]) -> Any:
    return daemon.client.chat.completions.create(
        model=daemon.engine.model_name, messages=[{"role": "user", "content": list(parts)}], max_tokens=4
    )


def check_refused(daemon: Daemon, *parts: dict[str, Any]) -> str:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(daemon, *parts, text_part("What is this?"))
    kind = parts[0]["type"]
    assert caught.value.param == f"messages[0].content[0].{kind}.url"
    message = caught.value.body["message"]  # type: ignore[index]
    assert message
    assert "internal error" not in message
    return str(message)


def answered_or_refused(daemon: Daemon, medium: dict[str, Any]) -> str | None:
    """The reason of the refusal, if it is one."""
    try:
        ask(daemon, medium, text_part("What happens?"))
    except openai.BadRequestError as error:
        return str(error.body["message"])  # type: ignore[index]
    return None


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("video", b"this is a text file, not a video\n" * 50, "video 1"),
        ("video", b"\0" * 4096, "video 1"),
        ("video", noise("JPEG"), "video 1: not a video file but a JPEG image: send it as an image"),
        ("image", b"this is a text file, not an image", "image 1"),
        ("image", wide_image(), "image 1"),
        ("image", noise("PNG"), "image 1"),
        ("image", noise("JPEG"), "image 1"),
        ("image", noise("WEBP"), "image 1"),
    ],
    ids=[
        "text as video",
        "zeros as video",
        "a JPEG as video",
        "text as image",
        "wide image",
        "half a PNG",
        "half a JPEG",
        "half a WEBP",
    ],
)
def test_bytes_that_are_no_usable_medium(daemon: Daemon, kind: str, data: bytes, reason: str) -> None:
    assert reason in check_refused(daemon, part(kind, data))
    daemon.wait_idle()
    assert ask(daemon, text_part("Still there?")).choices[0].message.content is not None


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9])
def test_a_truncated_clip(daemon: Daemon, sample_clip: Path, cut: float) -> None:
    data = sample_clip.read_bytes()
    check_refused(daemon, part("video", data[: int(len(data) * cut)]))
    daemon.wait_idle()


def test_every_damaged_video_is_answered_or_refused(daemon: Daemon, data_folder: Path) -> None:
    for path in sorted((data_folder / "videos" / "bad").iterdir()):
        if path.stat().st_size == 0:
            continue
        refusal = answered_or_refused(daemon, part("video", path.read_bytes()))
        assert refusal is None or "video 1" in refusal, path.name
    daemon.wait_idle()


def test_more_placeholders_in_text_than_media_are_only_text(daemon: Daemon) -> None:
    assert ask(daemon, text_part("<|image_pad|> what is <|video_pad|> this?")).choices[0].message.content is not None


def test_random_bytes_after_a_video_header(daemon: Daemon, sample_clip: Path) -> None:
    data = bytearray(sample_clip.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 4096] = random.Random(4096).randbytes(4096)
    refusal = answered_or_refused(daemon, part("video", bytes(data)))
    assert refusal is None or "video 1" in refusal
    daemon.wait_idle()
