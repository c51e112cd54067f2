"""Gemma 3: what its image tokens see, prefixes that end among them, and checkpoints that are refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders_gemma
import pytest
import torch
from builders import Loaded
from conformance_cases import CASES, prepare
from model_loop import Loop, make_adapter

from unifiedserve.errors import ConfigError
from unifiedserve.messages.media import MediaOptions, PromptError
from unifiedserve.models.registry import load_processor


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("gemma3")
    builders_gemma.gemma3(directory)
    return directory


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_limits(checkpoint: Path) -> None:
    """Text sees itself and what is before, a visual token all of its run; a chunk may begin within one."""
    adapter = make_adapter(checkpoint, torch.float32)
    assert adapter.limits(3, torch.tensor([False, False])) is None
    is_visual = torch.tensor([True, True, False, True, False, False, True, True, True])
    limits = adapter.limits(10, is_visual)
    assert limits is not None
    assert limits.tolist() == [12, 12, 13, 14, 15, 16, 19, 19, 19]


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("processor_config.json", lambda c: c["image_processor"].update(do_pan_and_scan=True), "do_pan_and_scan"),
        (
            "processor_config.json",
            lambda c: c["image_processor"].update(size={"height": 56, "width": 56}),
            "of 112 pixels",
        ),
        ("processor_config.json", lambda c: c["image_processor"].update(resample=1), "resample is 1"),
    ],
)
def test_rules_that_are_refused(
    file: str, change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    builders_gemma.gemma3(tmp_path)
    edit(tmp_path / file, change)
    with pytest.raises(ConfigError, match=message):
        load_processor(tmp_path)


def test_encoders_are_refused(tmp_path: Path) -> None:
    builders_gemma.gemma3_text(tmp_path)
    edit(tmp_path / "config.json", lambda c: c.update(use_bidirectional_attention=True))
    with pytest.raises(ConfigError, match="bidirectional"):
        make_adapter(tmp_path, torch.float32)


@pytest.mark.parametrize("option", ["num_frames", "max_pixels"])
def test_options_without_effect_are_refused(option: str, checkpoint: Path) -> None:
    with pytest.raises(PromptError) as refusal:
        load_processor(checkpoint).plan_image(100, 100, MediaOptions(**{option: 5}))
    assert refusal.value.param == option


@pytest.mark.parametrize("loaded", ["gemma3"], indirect=True)
def test_a_prefix_that_ends_among_the_tokens_of_an_image_is_continued(loaded: Loaded) -> None:
    """What is in the cache of an image was computed with all of it, and the rest sees all of it, too."""
    case, eos = CASES["3 images"], loaded.ours.eos_token_ids
    first, again = prepare(loaded, case), prepare(loaded, case)
    expected = loaded.hf.generate(case, 24)
    loop = Loop(loaded.adapter, page_size=8)
    try:
        assert loop.generate([first], 24, eos=eos) == [expected]
        is_visual = [token in loaded.adapter.visual_ids for token in first.prompt.token_ids]
        within = [i for i in range(8, len(is_visual), 8) if all(is_visual[i - 1 : i + 1])]
        assert within
        for end in within:
            again.pages, again.computed = first.pages[: end // 8], end
            assert loop.generate([again], 24, 5, eos) == [expected]
            loop.free += again.pages[end // 8 :]
    finally:
        loop.close()
