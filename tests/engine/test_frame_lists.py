"""Videos that come as images: they are seen as the video of these frames would be."""

import base64
import io
from typing import Any

import numpy as np
import openai
import pytest
from daemon import Daemon
from media import Frames, data_url, image_part, make_image, text_part
from PIL import Image

FRAMES = [make_image(seed, 112, 140) for seed in range(4)]


def png(frame: Frames) -> bytes:
    file = io.BytesIO()
    Image.fromarray(frame).save(file, "PNG")
    return file.getvalue()


def images(frames: list[Frames]) -> list[str]:
    return [data_url("image/png", png(frame)) for frame in frames]


def in_one_url(frames: list[Frames]) -> str:
    return "data:video/png;base64," + ",".join(base64.b64encode(png(frame)).decode() for frame in frames)


def ask(daemon: Daemon, *parts: dict[str, Any], **extra: Any) -> Any:
    return daemon.client.chat.completions.create(
        model=daemon.engine.model_name,
        messages=[{"role": "user", "content": [*parts, text_part("What happens?")]}],  # type: ignore[list-item]
        max_tokens=6,
        temperature=0,
        logprobs=True,
        extra_body=extra,
    )


def seen(answer: Any) -> Any:
    (choice,) = answer.choices
    logprobs = [entry.logprob for entry in choice.logprobs.content]
    return answer.usage.prompt_tokens, choice.message.content, logprobs


def alike(expected: Any) -> Any:
    return *expected[:2], pytest.approx(expected[2], abs=1e-4)


WAYS: list[dict[str, Any]] = [
    {"type": "video", "video": images(FRAMES), "fps": 2},
    {"type": "video", "video": images(FRAMES), "sample_fps": 2},
    {"type": "video_url", "video_url": {"url": images(FRAMES)}},
    {"type": "video_url", "video_url": {"url": in_one_url(FRAMES), "fps": 2}},
    {"type": "video", "video": [image_part(frame) for frame in FRAMES], "fps": 2},
    {"type": "video_url", "video_url": {"url": [image_part(FRAMES[0]), *images(FRAMES[1:])], "fps": 2}},
]
AS_VIDEO = {"media_io_kwargs": {"image": {"fps": 2}}}

pytestmark = pytest.mark.daemon("what goes wrong in a worker becomes a 400, and the engine goes on")


def test_every_way_to_write_frames_is_the_same_video(daemon: Daemon) -> None:
    expected = seen(ask(daemon, WAYS[0]))
    for way in WAYS[1:]:
        assert seen(ask(daemon, way)) == alike(expected)
    backwards = ask(daemon, {"type": "video", "video": images(FRAMES[::-1])})
    assert backwards.usage.prompt_tokens == expected[0]
    assert seen(backwards) != alike(expected)
    daemon.wait_idle()


def test_options_choose_among_frames(daemon: Daemon) -> None:
    some = {"type": "video", "video": images(FRAMES[::2])}
    chosen = ask(daemon, WAYS[0], media_io_kwargs={"video": {"num_frames": 2}})
    assert (
        chosen.usage.prompt_tokens == ask(daemon, some).usage.prompt_tokens < ask(daemon, WAYS[0]).usage.prompt_tokens
    )
    daemon.wait_idle()


def test_images_side_by_side_are_one_video_if_they_have_a_rate(daemon: Daemon) -> None:
    expected = seen(ask(daemon, WAYS[0]))
    parts = [image_part(frame) for frame in FRAMES]
    assert seen(ask(daemon, *parts, **AS_VIDEO)) == alike(expected)
    apart = ask(daemon, *parts)
    assert apart.usage.prompt_tokens != expected[0]
    told = ask(daemon, *parts, text_part("and"), parts[0], WAYS[0], **AS_VIDEO, return_media_usage=True)
    assert [(medium["kind"], medium["frames"], medium["param"]) for medium in told.usage.media] == [
        ("video", 4, "messages[0].content[0].image_url.url"),
        ("image", 1, "messages[0].content[5].image_url.url"),
        ("video", 4, "messages[0].content[6].video"),
    ]
    daemon.wait_idle()


def test_the_frame_at_fault_is_named(daemon: Daemon) -> None:
    parts: list[dict[str, Any]] = [image_part(FRAMES[0]), {"type": "image_url", "image_url": {"url": "ftp://x"}}]
    for asked, param in [
        ([text_part("See:"), *parts], "messages[0].content[2].image_url.url"),
        ([{"type": "video", "video": parts}], "messages[0].content[0].video[1].image_url.url"),
    ]:
        with pytest.raises(openai.BadRequestError, match="must begin with") as refused:
            ask(daemon, *asked, **AS_VIDEO)
        assert refused.value.param == param
    daemon.wait_idle()


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([png(FRAMES[0]), png(FRAMES[1][:56])], "video 1, frame 1: 140x56 pixels"),
        ([png(FRAMES[0]), png(FRAMES[1])[:300]], "video 1"),
        ([png(FRAMES[0]), b"text"], "video 1, frame 1: not an image"),
    ],
)
def test_faulty_frames_are_refused(daemon: Daemon, frames: list[bytes], words: str) -> None:
    urls = [data_url("image/png", frame) for frame in frames]
    with pytest.raises(openai.BadRequestError, match=words) as refused:
        ask(daemon, {"type": "video", "video": urls})
    assert refused.value.param == "messages[0].content[0].video"
    daemon.wait_idle()


def test_frames_are_decoded_as_images_are(daemon: Daemon) -> None:
    """An odd number is filled up by the last one, and transparent pixels show the background."""
    clear = np.concatenate([FRAMES[0], np.zeros_like(FRAMES[0][..., :1])], axis=2)
    white = np.full_like(FRAMES[0], 255)
    shown = ask(daemon, {"type": "video", "video": images([clear, *FRAMES[:2]])})
    whole = ask(daemon, {"type": "video", "video": images([white, *FRAMES[:2]])})
    assert seen(shown) == alike(seen(whole))
    daemon.wait_idle()
