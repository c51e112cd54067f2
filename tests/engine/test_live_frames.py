"""What a viewer of a real engine sees: its own frames and their times, everybody's spans, and nothing else."""

import base64
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pytest
from completions import KEEPS_NOTHING, SMALL_BUFFERS
from daemon import Daemon
from media import FPS, Clip, image_part, make_image, text_part, video_part
from PIL import Image

pytestmark = pytest.mark.daemon("frames that real workers decode", **KEEPS_NOTHING)

Clips = Callable[[int], Clip]
Event = dict[str, Any]


@contextmanager
def watching(daemon: Daemon, viewer: str) -> Iterator[Iterator[Event]]:
    """The events of a viewer that is there already."""
    with httpx.stream("GET", f"{daemon.url}/v1/events", params={"viewer": viewer}, timeout=300) as response:
        events = (json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line)
        assert next(events)["type"] == "counters"
        yield events


def ask(daemon: Daemon, *parts: Event, viewer: str, frames: int) -> str:
    """Asks for one token; returns the request's id."""
    completion = daemon.client.chat.completions.create(
        model=daemon.engine.model_name,
        messages=[{"role": "user", "content": list(parts)}],  # type: ignore[list-item]
        max_tokens=1,
        extra_body={"media_io_kwargs": {"video": {"num_frames": frames}}},
        extra_headers={"X-Viewer": viewer},
    )
    return completion.id


def until(events: Iterator[Event], enough: Callable[[list[Event]], bool]) -> list[Event]:
    seen: list[Event] = []
    while not enough(seen):
        seen.append(next(events))
    return seen


def pictures(seen: list[Event]) -> dict[tuple[int, int], np.ndarray]:
    """By medium and number, [height, width, 3]."""
    return {
        (event["medium"], frame["number"]): np.asarray(Image.open(io.BytesIO(base64.b64decode(frame["jpeg"]))))
        for event in seen
        if event["type"] == "frames"
        for frame in event["frames"]
    }


def test_frames_come_as_they_are_decoded(daemon: Daemon, clips: Clips) -> None:
    clip, image = clips(64), make_image(5, 112, 140)
    with watching(daemon, "me") as events:
        request = ask(daemon, video_part(clip), image_part(image), text_part("What?"), viewer="me", frames=7)
        seen = until(events, lambda seen: len(pictures(seen)) == 9)  # in any order
    (admitted,) = [event for event in seen if event["type"] == "admitted"]
    video, picture = admitted["media"]
    assert admitted["request"] == request
    assert (video["kind"], picture["kind"], picture["frames"], picture["seconds"]) == ("video", "image", 1, [])
    assert video["frames"] == 7 or video["frames"] == 8, "in pairs"
    assert np.allclose(video["seconds"], np.array(video["indices"]) / FPS, atol=1e-3)
    for (medium, number), shown in pictures(seen).items():
        source = image if medium else clip.frames[video["indices"][number]]
        expected = np.asarray(Image.fromarray(source).resize(shown.shape[1::-1]), float)
        assert np.abs(shown - expected).mean() < 12, "the same picture, but for resizing and JPEG"
    spans = [span for event in seen if event["type"] == "spans" for span in event["events"]]
    own = [span for span in spans if request in span["args"]["requests"]]
    assert "vision" in {span["cat"] for span in own}
    assert 0 < admitted["arrival"] <= min(span["ts"] for span in own)
    daemon.wait_idle()


def test_others_see_the_work_but_not_the_frames(daemon: Daemon, clips: Clips) -> None:
    with watching(daemon, "me") as mine, watching(daemon, "other") as others:
        request = ask(daemon, video_part(clips(8)), text_part("What?"), viewer="me", frames=4)

        def prefilled(seen: list[Event]) -> bool:
            spans = [span for event in seen if event["type"] == "spans" for span in event["events"]]
            return any(span["cat"] == "prefill" and request in span["args"]["requests"] for span in spans)

        until(mine, lambda seen: len(pictures(seen)) == 4)
        seen = until(others, prefilled)
    assert {event["type"] for event in seen} <= {"spans", "counters"}
    daemon.wait_idle()


@pytest.mark.daemon(**SMALL_BUFFERS)
def test_frames_of_pages_that_were_taken_anew_are_left_out(daemon: Daemon, clips: Clips) -> None:
    """In a patch buffer that holds little more than one request, nothing wrong is shown, and nothing is held."""
    clip = clips(64)
    with watching(daemon, "me") as events:
        ids = [ask(daemon, video_part(clip), text_part("What?"), viewer="me", frames=8) for _ in range(4)]
        seen = until(events, lambda seen: any(ids[-1] in str(event) and "prefill" in str(event) for event in seen))
    admitted = {event["request"]: event["media"][0]["indices"] for event in seen if event["type"] == "admitted"}
    for event in seen:
        for (_, number), shown in pictures([event]).items():
            source = clip.frames[admitted[event["request"]][number]]
            expected = np.asarray(Image.fromarray(source).resize(shown.shape[1::-1]), float)
            assert np.abs(shown - expected).mean() < 12
    daemon.wait_idle()
