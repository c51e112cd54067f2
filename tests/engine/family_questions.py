"""Questions that a family can be asked."""

from collections.abc import Callable
from typing import Any

from builders import Family
from media import Clip, make_image
from questions import Question, ask

Clips = Callable[[int], Clip]
EVERY_FRAME = {"media_io_kwargs": {"video": {"num_frames": -1}}}
KEPT_ROWS: dict[str, Any] = {"model": "mllama", "kv_page_tokens": 4, "prefill_chunk_tokens": 16}


def questions(family: Family, clips: Clips) -> dict[str, Question]:
    images: list[Any] = [make_image(1, 150, 200), make_image(2, 90, 300), make_image(3, 224, 56)]
    media = family.media
    asked = {"text": ask(["What is a river?"], clips)}
    if "image" in media:
        asked["image"] = ask([images[0], "What is this?"], clips)
        asked["3 images"] = ask([images[0], "and", images[1], images[2], "Compare."], clips)
    if "video" in media:
        asked["video"] = ask([clips(9), "What happens?"], clips, EVERY_FRAME)
    if {"image", "video"} <= media and family.mixed:
        asked["image and video"] = ask([images[1], clips(8), "Is the image in the video?"], clips, EVERY_FRAME)
    return asked
