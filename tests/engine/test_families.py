"""Every family with real files: greedy float32 answers equal transformers' generate.

One checkpoint of each kind of layout is asked over HTTP; the others' files go through the vision stage in this process,
and their prompts through the loop that all families' conformance is tested with.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import reference
import torch
from builders import Family
from checkpoints import find_checkpoint
from daemon import Daemon
from every_family import FAMILIES
from media import Clip, make_image
from model_loop import Loop, Request, make_adapter, plans
from PIL import Image
from read_files import read_files
from test_fidelity import TOKENS, Question, answer, ask

from unifiedserve.models import registry
from unifiedserve.models.registry import load_processor

Clips = Callable[[int], Clip]

EVERY_FRAME = {"media_io_kwargs": {"video": {"num_frames": -1}}}
KEPT_ROWS: dict[str, Any] = {"model": "mllama", "kv_page_tokens": 4, "prefill_chunk_tokens": 16}

OVER_HTTP = [
    "llama",  # text only
    "qwen3_5",  # grids of patches, and layers with a state
    "gemma3",  # pictures, whose tokens see each other
    "internvl",  # tiles, and videos of pictures
    "minicpmv4_6",  # views
    pytest.param("mllama", marks=pytest.mark.daemon(**KEPT_ROWS)),  # tiles, whose tokens are kept for decode
]
# One checkpoint for each processor that sees media; Qwen2.5-VL has the other tests to itself.
IN_PROCESS = [
    name
    for name in FAMILIES
    if FAMILIES[name].media and name in registry.FAMILIES and name not in ("qwen2_5_vl", "mllama", *OVER_HTTP)
]


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


@pytest.mark.daemon("one checkpoint for each kind of layout, by all stages as users have them", prefill_chunk_tokens=16)
@pytest.mark.parametrize("model", OVER_HTTP)
def test_answers_equal_generate(
    model: str, daemon: Daemon, clips: Clips, tmp_path_factory: pytest.TempPathFactory
) -> None:
    hf = reference.load(find_checkpoint(tmp_path_factory, model))
    asked = questions(FAMILIES[model], clips)
    expected = {case: hf.generate(question.case, TOKENS) for case, question in asked.items()}
    assert {case: answer(daemon, question) for case, question in asked.items()} == expected
    daemon.wait_idle()


@pytest.mark.parametrize("family", IN_PROCESS)
def test_files_read_here_give_the_same_answers(
    family: str, clips: Clips, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    checkpoint = find_checkpoint(tmp_path_factory, family)
    hf, ours = reference.load(checkpoint), load_processor(checkpoint)
    loop = Loop(make_adapter(checkpoint, torch.float32))
    try:
        for name, question in questions(FAMILIES[family], clips).items():
            case = question.case
            media = plans(ours, case)
            files = iter(media_files(question, clips, tmp_path))
            patches = read_files([(plan, next(files)) for plan in media], ours.patch_row_bytes)
            request = Request(ours.prompt(case.messages, media), patches)
            expected = hf.generate(case, TOKENS)
            assert loop.generate([request], TOKENS, 16, ours.eos_token_ids) == [expected], name
            loop.preempt(request)
    finally:
        loop.close()


def media_files(question: Question, clips: Clips, folder: Path) -> list[Path]:
    """Return the files of a question's media, in prompt order."""
    images = iter(question.case.images)
    videos = iter(clips(len(frames)).path for frames in question.case.videos)
    files = []
    for part in (part for message in question.case.messages for part in message["content"]):
        if part["type"] == "image":
            files.append(folder / f"{len(files)}.png")
            Image.fromarray(next(images)).save(files[-1])
        elif part["type"] == "video":
            files.append(next(videos))
    return files
