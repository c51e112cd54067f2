"""Qwen3-VL's frames, sizes and times equal those of transformers' processors."""

from pathlib import Path
from typing import Any

import builders
import pytest
import reference
import torch
from cases import pixels, user
from hypothesis import given
from hypothesis import strategies as st
from model_loop import plans
from reference import Case, Reference, transformers

from unifiedserve.models.families.qwen2_5_vl.rules import MediaRules
from unifiedserve.models.families.qwen3_vl import frame_size, sample_frames
from unifiedserve.models.processor import ALL_FRAMES, MediaOptions, Processor, PromptError, VideoInfo
from unifiedserve.models.processor_defaults import QWEN3_VIDEOS
from unifiedserve.models.processor_rules import raw_rules
from unifiedserve.models.registry import load_processor

RULES = MediaRules.read(raw_rules("", {}, QWEN3_VIDEOS))
sides = st.integers(1, 3000)
totals = st.integers(1, 20_000)
rates = st.floats(0.1, 240)
counts = st.integers(2, 768)


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("qwen3")
    builders.FAMILIES["qwen3_vl"].make(directory)
    return directory


@pytest.fixture(scope="module")
def ours(qwen3: Path) -> Processor:
    return load_processor(qwen3)


@pytest.fixture(scope="module")
def hf(qwen3: Path) -> Reference:
    return reference.load(qwen3)


def video(total: int, fps: float) -> VideoInfo:
    return VideoInfo(total, fps, total / fps, 640, 360)


def hf_indices(info: VideoInfo, **kwargs: Any) -> list[int]:
    from transformers.video_utils import VideoMetadata

    metadata = VideoMetadata(info.num_frames, info.fps, info.width, info.height, info.duration)
    indices: list[int] = transformers.Qwen3VLVideoProcessor().sample_frames(metadata, **kwargs).tolist()
    return indices


@given(total=totals, fps=rates, wanted=rates)
def test_frames_by_rate(total: int, fps: float, wanted: float) -> None:
    assert list(sample_frames(RULES, video(total, fps), MediaOptions(fps=wanted))) == hf_indices(
        video(total, fps), fps=wanted
    )


@given(total=totals, fps=rates)
def test_frames_by_the_default_rate(total: int, fps: float) -> None:
    assert list(sample_frames(RULES, video(total, fps), MediaOptions())) == hf_indices(video(total, fps))


@given(total=totals, wanted=st.integers(1, 768))
def test_frames_by_number(total: int, wanted: int) -> None:
    info = video(total, 30.0)
    assert list(sample_frames(RULES, info, MediaOptions(num_frames=wanted))) == hf_indices(info, num_frames=wanted)


@given(total=totals, limit=st.integers(1, 768))
def test_frames_are_bounded(total: int, limit: int) -> None:
    for options in ({"fps": 100.0}, {"num_frames": 700}, {"num_frames": ALL_FRAMES}, {}):
        indices = sample_frames(RULES, video(total, 30.0), MediaOptions(max_frames=limit, **options))
        assert 1 <= len(indices) <= limit
        assert list(indices) == sorted(indices)
        assert indices[-1] < total
    beyond = sample_frames(RULES, video(total, 30.0), MediaOptions(num_frames=10**12))
    assert len(beyond) == max(total, RULES.max_frames)


@given(frames=counts, height=sides, width=sides, capped=st.booleans())
def test_frame_size(frames: int, height: int, width: int, capped: bool) -> None:
    processor = transformers.Qwen3VLVideoProcessor()
    rules = MediaRules.read(raw_rules("", {"cap_pixels_per_frame": capped}, QWEN3_VIDEOS))
    clip = torch.empty(1, frames, 1, height, width, device="meta")
    try:
        expected = processor.resize(clip, processor.size, 0, 32, 2, cap_pixels_per_frame=capped)
    except ValueError:
        with pytest.raises(PromptError, match="200 times"):
            frame_size(rules, height, width, frames, MediaOptions())
    else:
        assert frame_size(rules, height, width, frames, MediaOptions()) == tuple(expected.shape[-2:])


@given(frames=counts, limits=st.tuples(st.integers(10_000, 100_000), st.integers(200_000, 900_000)))
def test_a_request_bounds_one_frame(frames: int, limits: tuple[int, int]) -> None:
    low, high = limits
    rows, columns = frame_size(RULES, 700, 500, frames, MediaOptions(min_pixels=low, max_pixels=high))
    assert low <= rows * columns <= high


@pytest.mark.parametrize(
    ("total", "fps", "options"),
    [
        (40, 10.0, {}),
        (40, 10.0, {"fps": 5.0}),
        (25, 29.97, {"num_frames": 7}),
        (9, 1.0, {"fps": 0.5}),
        (48, 24.0, {"num_frames": 2}),
    ],
)
def test_video_plan(total: int, fps: float, options: dict[str, Any], ours: Processor, hf: Reference) -> None:
    """The prompt with its times, the grid, and the very frames, through the whole processor."""
    case = Case([user("video", "Well?")], videos=[pixels(total, total, 90, 130)], fps=fps)
    case.sampling = {"do_sample_frames": True, **options}
    inputs, patches = hf.sampled(case)
    plan = plans(ours, case, MediaOptions(**options))[0]
    assert inputs["video_grid_thw"].tolist() == [list(plan.grid)]
    assert ours.prompt(case.messages, [plan]).token_ids == inputs["input_ids"][0].tolist()
    chosen = Case(case.messages, videos=[case.videos[0][list(plan.frame_indices)]])
    assert torch.equal(hf.uint8_patches(chosen)["video"], patches)


def test_one_frame_and_unknown_rates(ours: Processor) -> None:
    """Where transformers fails."""
    assert ours.plan_video(video(1, 5.0), MediaOptions()).timestamps == (0.0,)
    plan = ours.plan_video(VideoInfo(48, 0.0, 0.0, 64, 64), MediaOptions(num_frames=4))
    assert plan.timestamps == pytest.approx((8 / 24, 39 / 24))
    with pytest.raises(PromptError, match="no frames"):
        ours.plan_video(video(0, 5.0), MediaOptions())
