"""Every family with real files: greedy float32 answers equal transformers' generate.

One checkpoint of each kind of layout is asked over HTTP, the others by real workers in this process.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import reference
from builders import Family
from checkpoints import find_checkpoint
from daemon import Daemon
from every_family import FAMILIES
from inline_workers import InlineWorkers, as_sent
from media import Clip, make_image
from test_fidelity import TOKENS, Question, answer, ask

from unifiedserve.config import EngineConfig
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.models import registry
from unifiedserve.models.registry import load_processor
from unifiedserve.placement import read_placement

Clips = Callable[[int], Clip]

CONFIG = EngineConfig(prefill_chunk_tokens=16, vision_threads=1)
GREEDY = SamplingParams(temperature=0, max_tokens=TOKENS)
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
def test_workers_here_give_the_same_answers(
    family: str, clips: Clips, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    checkpoint = find_checkpoint(tmp_path_factory, family)
    hf, processor = reference.load(checkpoint), load_processor(checkpoint)
    workers = InlineWorkers(read_placement("shared", ()), checkpoint, processor, CONFIG)
    asked = questions(FAMILIES[family], clips)
    try:
        for uid, question in enumerate(asked.values(), 1):
            workers.submit(uid, as_sent(question, processor, clips, tmp_path), GREEDY)
        answers = {case: workers.answer(uid) for uid, case in enumerate(asked, 1)}
        assert answers == {case: hf.generate(question.case, TOKENS) for case, question in asked.items()}
        assert set(workers.used_pages().values()) == {0}
    finally:
        workers.close()
