"""Sizes and frames that a family's processor chooses, against transformers' own over many media."""

from inspect import signature

import numpy as np
import pytest
import torch
from builders import Loaded
from cases import user
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from model_loop import plans
from reference import Case, transformers

from unifiedserve.messages.media import MediaOptions, PromptError, VideoInfo

SIDES = st.integers(10, 800)
many = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
FPS = 12.5


@pytest.fixture(autouse=True)
def _skip_without_media(loaded: Loaded) -> None:
    if not loaded.media:
        pytest.skip("a family without media")


@many
@given(height=SIDES, width=SIDES)
def test_prompts_of_images_of_any_size(loaded: Loaded, height: int, width: int) -> None:
    assume(max(height, width) < 150 * min(height, width))
    case = Case([user("image", "What is this?")], [np.zeros((height, width, 3), np.uint8)])
    (plan,) = plans(loaded.ours, case)
    assert loaded.ours.prompt(case.messages, [plan]).token_ids == loaded.hf.inputs(case)["input_ids"][0].tolist()
    if plan.patches * loaded.ours.patch_row_bytes < 1 << 21:
        patches = torch.zeros(plan.patches, loaded.ours.patch_row_bytes, dtype=torch.uint8)
        assert len(loaded.adapter.visual_tokens(patches, [(plan, range(plan.units))])) == plan.tokens


@many
@given(total=st.integers(1, 5000), count=st.integers(1, 300) | st.none(), fps=st.floats(0.1, 12.0))
def test_frames_are_transformers(loaded: Loaded, total: int, count: int | None, fps: float) -> None:
    if "video" not in loaded.media:
        pytest.skip("a family without videos")
    sample = loaded.hf.processor.video_processor.sample_frames
    if "num_frames" not in signature(sample).parameters:
        pytest.skip("transformers' rule has no such options")
    assume(count is None or count <= total)  # for more, some of transformers' repeat frames
    sampling = {"num_frames": count} if count else {"fps": fps}
    video = VideoInfo(total, FPS, total / FPS, 160, 120)
    metadata = transformers.video_utils.VideoMetadata(
        total_num_frames=total, fps=FPS, duration=total / FPS, width=160, height=120
    )
    try:
        expected = sample(metadata=metadata, **sampling)
    except (ValueError, ZeroDivisionError):
        assume(False)  # fewer frames than transformers can sample
    assume(
        len(set(expected.tolist() if hasattr(expected, "tolist") else expected)) == len(expected)
    )  # ours repeats none
    plan = loaded.ours.plan_video(video, MediaOptions(**sampling))
    # its float32 steps may end in an index behind the last frame
    assert list(plan.frame_indices) == [int(index) for index in expected if index < total]


def test_unknown_options_are_refused_by_name(loaded: Loaded) -> None:
    for name in ("num_frames", "fps", "max_frames"):
        with pytest.raises(PromptError) as refusal:
            loaded.ours.plan_image(100, 100, MediaOptions(**{name: 2}))
        assert refusal.value.param == name
