"""Every family over HTTP, with real files through all stages: greedy float32 answers equal transformers' generate."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import reference
from builders import Family
from daemon import Daemon
from every_family import FAMILIES
from media import Clip, make_image
from test_fidelity import TOKENS, Question, answer, ask

from unifiedserve.models import registry

EVERY_FRAME = {"media_io_kwargs": {"video": {"num_frames": -1}}}


def questions(family: Family, clips: Callable[[int], Clip]) -> dict[str, Question]:
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


# One checkpoint for each processor that sees media; Qwen2.5-VL has the other tests to itself.
NAMES = [name for name in FAMILIES if FAMILIES[name].media and name in registry.FAMILIES and name != "qwen2_5_vl"]


@pytest.mark.parametrize("name", ["llama", *NAMES])
def test_answers_equal_generate(
    name: str, tmp_path: Path, serve: Callable[..., Daemon], clips: Callable[[int], Clip]
) -> None:
    family = FAMILIES[name]
    family.make(tmp_path)
    hf = reference.load(tmp_path)
    asked = questions(family, clips)
    expected = {case: hf.generate(question.case, TOKENS) for case, question in asked.items()}
    daemon = serve(model=str(tmp_path), prefill_chunk_tokens=16)
    assert {case: answer(daemon, question) for case, question in asked.items()} == expected
    daemon.wait_idle()
