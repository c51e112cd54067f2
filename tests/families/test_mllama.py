"""Llama 3.2 Vision: pixels and prompts for images of any size, and which tiles a token attends to, by transformers."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from builders import Loaded
from cases import pixels, user
from conformance_cases import prepare
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Case, transformers

from unifiedserve.errors import ConfigError
from unifiedserve.messages.media import MediaOptions, PromptError, VideoInfo
from unifiedserve.models.registry import load_processor
from unifiedserve.models.scopes import cross_spans

pytestmark = pytest.mark.parametrize("loaded", ["mllama"], indirect=True, scope="session")

MOST, TILE = 4, 17  # tiles of an image, visual tokens of a tile


@settings(max_examples=60)
@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 1000))
def test_images_of_any_size(loaded: Loaded, height: int, width: int, seed: int) -> None:
    case = Case([user("image", "Well?")], [pixels(seed, height, width)])
    inputs = loaded.hf.inputs(case, do_rescale=False, do_normalize=False)
    request = prepare(loaded, case)
    assert request.prompt.token_ids == inputs["input_ids"][0].tolist()
    tiles = inputs["pixel_values"][0, 0, : int(inputs["aspect_ratio_mask"].sum())].to(torch.uint8)
    assert torch.equal(request.patches, tiles.reshape(request.patches.shape))


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 400), st.integers(1, 400)), max_size=4), st.integers(0, 3))
def test_tokens_attend_to_what_they_do_in_transformers(
    loaded: Loaded, images: list[tuple[int, int, int]], text: int
) -> None:
    """Any number of text tokens before each image and at the end; a token without a key has all keys."""
    rules = transformers.models.mllama.processing_mllama
    image = loaded.ours.visual_ids["image"]
    token_ids = [token for before, *_ in images for token in [*[1] * before, image]] + [1] * (text + (not images))
    media = [loaded.ours.plan_image(width, height, MediaOptions()) for _, height, width in images]
    scopes = loaded.adapter.scopes(token_ids, media)
    if not media:
        assert scopes == []
        return
    counts = [plan.tiles.tiles for plan in media]
    ranges = rules.get_cross_attention_token_mask(token_ids, image)
    mask = rules.convert_sparse_cross_attention_mask_to_dense([ranges], [counts], MOST, len(token_ids))[0]
    wanted = mask.reshape(len(token_ids), -1).repeat(TILE, axis=1).astype(bool)
    early = ~wanted.any(axis=1)
    wanted[early] = True
    total = wanted.shape[1]
    for start, stop in ((0, len(token_ids)), (len(token_ids) // 2, len(token_ids))):
        found = np.zeros((len(token_ids), total + 1), bool)
        for span in cross_spans(scopes, start, stop, _rows):
            found[start + span.first : start + span.last, span.rows] = True
            found[start + span.first : start + span.last, -1] = span.early
        assert np.array_equal(found[start:stop, :-1], wanted[start:stop])
        assert np.array_equal(found[start:stop, -1], early[start:stop])
    (answer,) = cross_spans(scopes, len(token_ids) + 5, len(token_ids) + 6, _rows)
    assert np.array_equal(np.flatnonzero(wanted[-1]), answer.rows)


def _rows(parts: Any) -> torch.Tensor:
    return torch.cat([torch.arange(part.start, part.stop) for part in parts])


def test_a_prompt_of_tokens_has_the_image_token_behind_the_vocabulary(loaded: Loaded) -> None:
    image = loaded.ours.visual_ids["image"]
    assert image == loaded.ours.vocab_size
    plan = loaded.ours.plan_image(64, 64, MediaOptions())
    assert loaded.ours.prompt_from_tokens([5, image, 6], [plan]).token_ids == [5, image, 6]
    for ids, media in (([5, image], []), ([5], [plan]), ([image, image], [plan])):
        with pytest.raises(PromptError, match="places for"):
            loaded.ours.prompt_from_tokens(ids, media)


def test_videos_and_sizes_are_refused(loaded: Loaded) -> None:
    with pytest.raises(PromptError, match="does not take videos"):
        loaded.ours.plan_video(VideoInfo(8, 8.0, 1.0, 64, 48), MediaOptions())
    with pytest.raises(PromptError, match="max_pixels"):
        loaded.ours.plan_image(64, 48, MediaOptions(max_pixels=1000))


@pytest.mark.parametrize(
    ("name", "value", "wanted"), [("max_image_tiles", 2, "4"), ("size", {"height": 70, "width": 70}, "of 56 pixels")]
)
def test_rules_that_do_not_fit_the_encoder_end_the_start(
    loaded: Loaded, tmp_path: Path, name: str, value: Any, wanted: str
) -> None:
    directory = shutil.copytree(loaded.checkpoint, tmp_path / "changed")
    file = directory / "processor_config.json"
    rules = json.loads(file.read_text())
    rules["image_processor"][name] = value
    file.write_text(json.dumps(rules))
    with pytest.raises(ConfigError, match=f"{name} is .*, which must be {wanted}"):
        load_processor(directory)
