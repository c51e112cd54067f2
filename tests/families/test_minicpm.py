"""MiniCPM-V: pixels and texts for images and videos of any size, and the frames it sees, by transformers."""

from typing import Any

import pytest
import torch
from builders import Loaded
from cases import pixels, user
from conformance_cases import prepare
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import Case, transformers

from unifiedserve.messages.media import MediaOptions, VideoInfo

pytestmark = pytest.mark.parametrize("loaded", ["minicpmv4_6"], indirect=True, scope="session")


def pictures(packed: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """The pictures [3, height, width] one after another, of transformers' patches side by side."""
    side, left, parts = packed.shape[2], packed[0].to(torch.uint8), []
    for rows, columns in sizes.tolist():
        part, left = left[..., : rows * columns * side], left[..., rows * columns * side :]
        parts.append(part.reshape(3, side, rows, columns, side).permute(0, 2, 1, 3, 4).flatten())
    assert left.numel() == 0
    return torch.cat(parts)


def check(loaded: Loaded, case: Case) -> None:
    inputs = loaded.hf.inputs(case, rescale_factor=1.0, do_normalize=False)
    request = prepare(loaded, case)
    assert request.prompt.token_ids == inputs["input_ids"][0].tolist()
    suffix = "_videos" if case.videos else ""
    assert torch.equal(
        request.patches.flatten(), pictures(inputs["pixel_values" + suffix], inputs["target_sizes" + suffix])
    )


@settings(max_examples=60)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 1000))
@example(2, 900, 0)
@example(900, 3, 0)
@example(64, 64, 0)
def test_images_of_any_size(loaded: Loaded, height: int, width: int, seed: int) -> None:
    check(loaded, Case([user("image", "Well?")], [pixels(seed, height, width)]))


@settings(max_examples=20)
@given(st.integers(1, 8), st.integers(4, 200), st.integers(4, 200))
def test_videos_of_any_size(loaded: Loaded, frames: int, height: int, width: int) -> None:
    check(loaded, Case([user("video", "Well?")], videos=[pixels(1, frames, height, width)]))


def test_images_and_videos_are_numbered_on_their_own(loaded: Loaded) -> None:
    case = Case(
        [user("image", "video", "image", "video")],
        [pixels(1, 40, 50), pixels(2, 90, 30)],
        [pixels(3, 2, 30, 30), pixels(4, 3, 60, 30)],
    )
    assert prepare(loaded, case).prompt.token_ids == loaded.hf.inputs(case)["input_ids"][0].tolist()


@settings(max_examples=300)
@given(st.integers(1, 5000), st.floats(0.5, 120), st.one_of(st.none(), st.integers(1, 200)))
def test_frames_are_transformers(loaded: Loaded, total: int, fps: float, most: int | None) -> None:
    duration = total / fps
    metadata = transformers.video_utils.VideoMetadata(total_num_frames=total, fps=fps, duration=duration)
    expected = loaded.hf.processor.video_processor.sample_frames(metadata, max_num_frames=most)
    plan = loaded.ours.plan_video(VideoInfo(total, fps, duration, 64, 48), MediaOptions(max_frames=most))
    assert list(plan.frame_indices) == expected


@pytest.mark.parametrize(
    ("options", "frames"),
    [
        ({"num_frames": 3}, (0, 16, 32)),
        ({"num_frames": -1, "max_frames": 3}, (0, 16, 32)),
        ({"fps": 1.0}, (0, 8, 16, 24, 32)),
        ({"fps": 0.5}, (0, 16, 32)),
        ({"fps": 100.0, "max_frames": 3}, (0, 16, 32)),
    ],
)
def test_as_many_frames_as_asked_for(loaded: Loaded, options: dict[str, Any], frames: tuple[int, ...]) -> None:
    assert loaded.ours.plan_video(VideoInfo(33, 8.0, 33 / 8, 64, 48), MediaOptions(**options)).frame_indices == frames
