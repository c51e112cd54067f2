"""Frame indices, sizes, grids and token counts equal those of transformers' processors."""

from pathlib import Path
from typing import Any

import pytest
import torch
from cases import pixels, user
from generation_cases import CASES
from hypothesis import given
from hypothesis import strategies as st
from model_loop import plans
from PIL import Image
from reference import Case, Reference

from unifiedserve.errors import ConfigError
from unifiedserve.models.families.qwen2_5_vl.rules import MediaRules, frame_size, read_rules, resized, sample_frames
from unifiedserve.models.frame_sampling import float32_range
from unifiedserve.models.processor import ALL_FRAMES, MediaOptions, Processor, PromptError, VideoInfo
from unifiedserve.models.registry import load_processor
from unifiedserve.models.tiny import make_checkpoint

sides = st.integers(1, 5000)
limits = st.tuples(st.integers(1, 500_000), st.integers(1, 1_000_000)).map(sorted)
totals = st.integers(1, 20_000)
rates = st.floats(0.1, 240)


def video(total: int, fps: float = 30.0, width: int = 640, height: int = 360) -> VideoInfo:
    return VideoInfo(total, fps, total / fps, width, height)


def hf_size(height: int, width: int, limit: list[int]) -> tuple[int, int]:
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import smart_resize

    size: tuple[int, int] = smart_resize(height, width, 28, *limit)
    return size


def hf_indices(hf: Reference, info: VideoInfo, **kwargs: Any) -> list[int]:
    """What transformers samples; the checkpoint's own `fps` gives way to `num_frames`."""
    from transformers.video_utils import VideoMetadata

    metadata = VideoMetadata(info.num_frames, info.fps, info.width, info.height, info.duration)
    processor = hf.processor.video_processor
    saved, processor.fps = processor.fps, None if "num_frames" in kwargs else processor.fps
    try:
        indices = processor.sample_frames(metadata, **kwargs).tolist()
    finally:
        processor.fps = saved
    # Rounding sometimes makes it name one more frame, just past the end, which it then fails to read.
    return indices[:-1] if indices[-1] == info.num_frames else indices


@given(height=sides, width=sides, limit=limits)
def test_size_after_resize(height: int, width: int, limit: list[int]) -> None:
    try:
        expected = hf_size(height, width, limit)
    except ValueError:
        with pytest.raises(PromptError, match="200 times"):
            resized(height, width, 28, *limit)
    else:
        assert resized(height, width, 28, *limit) == expected


@pytest.mark.parametrize(
    ("width", "height"), [(1, 1), (13, 27), (28, 28), (640, 480), (10, 2000), (3001, 17), (999, 1001)]
)
@pytest.mark.parametrize(("low", "high"), [(None, None), (3136, 50_000), (200_000, 300_000)])
def test_image_plan(width: int, height: int, low: int | None, high: int | None, ours: Processor, hf: Reference) -> None:
    processor = hf.processor.image_processor
    size = {
        "shortest_edge": low or processor.size["shortest_edge"],
        "longest_edge": high or processor.size["longest_edge"],
    }
    plan = ours.plan_image(width, height, MediaOptions(min_pixels=low, max_pixels=high))
    features = processor(images=[Image.fromarray(pixels(0, height, width))], size=size, return_tensors="pt")
    assert features["image_grid_thw"].tolist() == [list(plan.grid)]
    assert features["pixel_values"].shape == (plan.patches, ours.patch_row_bytes)
    assert (plan.units, plan.frame_indices, plan.seconds_per_unit) == (1, (), 0.0)


@given(total=totals, fps=rates, wanted=rates)
def test_frames_by_rate(total: int, fps: float, wanted: float, hf: Reference, checkpoint: Path) -> None:
    rules, info = read_rules(checkpoint)[1], video(total, fps)
    indices = sample_frames(rules, info, MediaOptions(fps=wanted))
    if total == 1:
        assert indices == (0,)
    else:
        assert list(indices) == hf_indices(hf, info, fps=wanted)


@given(total=totals, fps=rates)
def test_frames_by_the_checkpoints_rule(total: int, fps: float, hf: Reference, checkpoint: Path) -> None:
    info = video(total, fps)
    indices = sample_frames(read_rules(checkpoint)[1], info, MediaOptions())
    assert list(indices) == ([0] if total == 1 else hf_indices(hf, info))


@given(total=totals, wanted=st.integers(1, 768))
def test_frames_by_number(total: int, wanted: int, hf: Reference, checkpoint: Path) -> None:
    """Where transformers refuses, there are as many whole groups as the video has, and at least one frame."""
    indices = sample_frames(read_rules(checkpoint)[1], video(total), MediaOptions(num_frames=wanted))
    rounded = round(wanted / 2) * 2
    if 0 < rounded <= total:
        assert list(indices) == hf_indices(hf, video(total), num_frames=wanted)
    else:
        assert len(indices) == max(1, min(rounded, total // 2 * 2))
        assert list(indices) == sorted(set(indices))
        assert indices[-1] < total


@given(total=totals, limit=st.integers(1, 768), wanted=rates)
def test_frames_are_bounded(total: int, limit: int, wanted: float, hf: Reference, checkpoint: Path) -> None:
    rules, info = read_rules(checkpoint)[1], video(total)
    indices = sample_frames(rules, info, MediaOptions(fps=wanted, max_frames=limit))
    assert len(indices) <= limit
    if min(limit, total) > 1:
        assert list(indices) == hf_indices(hf, info, fps=wanted, max_frames=limit)
    assert len(sample_frames(rules, info, MediaOptions(num_frames=700, max_frames=limit))) <= limit
    assert len(sample_frames(rules, info, MediaOptions(num_frames=ALL_FRAMES, max_frames=limit))) <= limit


@pytest.mark.parametrize(("total", "fps", "options"), [
    (40, 10.0, {}),
    (40, 10.0, {"fps": 5.0}),
    (25, 29.97, {"num_frames": 7}),
    (33, 25.0, {"num_frames": 10}),
    (9, 1.0, {"fps": 0.5}),
    (48, 24.0, {"fps": 4.0, "max_frames": 6}),
])  # fmt: skip
def test_video_plan(total: int, fps: float, options: dict[str, Any], ours: Processor, hf: Reference) -> None:
    """Grid, seconds and the very frames, through the whole processor."""
    case = Case([user("video")], videos=[pixels(total, total, 90, 130)], fps=fps)
    case.sampling = {"do_sample_frames": True, **options}
    inputs, patches = hf.sampled(case)
    plan = plans(ours, case, MediaOptions(**options))[0]
    assert inputs["video_grid_thw"].tolist() == [list(plan.grid)]
    torch.testing.assert_close(inputs["second_per_grid_ts"], torch.tensor([plan.seconds_per_unit]), rtol=0, atol=0)
    chosen = Case(case.messages, videos=[case.videos[0][list(plan.frame_indices)]])
    assert torch.equal(hf.uint8_patches(chosen)["video"], patches)
    assert patches.shape == (plan.patches, ours.patch_row_bytes)


@given(frames=st.integers(1, 768), height=sides, width=sides)
def test_total_budget_of_a_video(frames: int, height: int, width: int, hf: Reference) -> None:
    """`cap_pixels_per_frame`, where a checkpoint asks for it."""
    rules = MediaRules(min_pixels=128 * 28 * 28, max_pixels=768 * 28 * 28, cap_pixels_per_frame=True)
    size = hf.processor.video_processor.size.__class__(shortest_edge=rules.min_pixels, longest_edge=rules.max_pixels)
    if max(height, width) > 200 * min(height, width):
        return
    clip = torch.empty(1, frames, 1, height, width, device="meta")
    resize = hf.processor.video_processor.resize
    expected = resize(clip, size, resample=0, factor=28, temporal_factor=2, cap_pixels_per_frame=True)
    assert frame_size(rules, height, width, frames, MediaOptions()) == tuple(expected.shape[-2:])


def test_floats_equal(checkpoint: Path, hf: Reference) -> None:
    """Normalised uint8 patches are bit for bit the processor's pixel values."""
    case = CASES["image and video"]
    inputs, patches = hf.inputs(case), hf.uint8_patches(case)
    for rules, kind, key in zip(
        read_rules(checkpoint), ("image", "video"), ("pixel_values", "pixel_values_videos"), strict=True
    ):
        mean, deviation = rules.normalisation()
        assert torch.equal(patches[kind].float().sub(mean).div(deviation), inputs[key])


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"num_frames": 0}, "num_frames"),
        ({"num_frames": -2}, "num_frames"),
        ({"fps": 0.0}, "fps"),
        ({"fps": float("nan")}, "fps"),
        ({"fps": float("inf")}, "fps"),
        ({"fps": 1.0, "num_frames": 4}, "fps"),
        ({"max_frames": 0}, "max_frames"),
        ({"min_pixels": 0}, "min_pixels"),
        ({"max_pixels": -5}, "max_pixels"),
        ({"min_pixels": 1_000_000, "max_pixels": 1000}, "min_pixels"),
    ],
)
def test_bad_options(options: dict[str, Any], param: str, ours: Processor) -> None:
    with pytest.raises(PromptError, match=param) as caught:
        ours.plan_video(video(10), MediaOptions(**options))
    assert caught.value.param == param


def test_bad_media(ours: Processor) -> None:
    with pytest.raises(PromptError, match="no frames"):
        ours.plan_video(video(0), MediaOptions())
    with pytest.raises(PromptError, match="0x360"):
        ours.plan_video(video(5, width=0), MediaOptions())
    with pytest.raises(PromptError, match="100000x100"):
        ours.plan_image(100_000, 100, MediaOptions())
    with pytest.raises(PromptError, match="num_frames is an option of videos"):
        ours.plan_image(100, 100, MediaOptions(num_frames=3))


@pytest.mark.parametrize("fps", [0.0, float("nan"), float("inf")])
def test_unknown_rate(fps: float, ours: Processor) -> None:
    plan = ours.plan_video(VideoInfo(48, fps, 0.0, 64, 64), MediaOptions(num_frames=8))
    assert plan.seconds_per_unit == pytest.approx(0.5)


def test_rules_come_from_the_nested_file_first(tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path / "nested")
    (directory / "processor_config.json").write_text('{"video_processor": {"min_pixels": 7, "max_pixels": null}}')
    image, video_rules = read_rules(directory)
    assert (image.min_pixels, image.max_pixels) == (56 * 56, 256 * 28 * 28)
    assert (video_rules.min_pixels, video_rules.max_pixels) == (7, 768 * 28 * 28)


def test_an_image_processor_serves_videos_too(tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path / "shared")
    (directory / "video_preprocessor_config.json").unlink()
    image, video_rules = read_rules(directory)
    assert image == video_rules


def test_the_first_name_of_an_image_processor(tmp_path: Path) -> None:
    """R1-Onevision-7B and copies of early Qwen2.5-VL call it so."""
    directory = make_checkpoint(tmp_path / "early")
    path = directory / "preprocessor_config.json"
    path.write_text(path.read_text().replace('"Qwen2VLImageProcessor"', '"Qwen2_5_VLImageProcessor"'))
    assert load_processor(directory).plan_image(640, 480, MediaOptions()).units == 1


def test_malformed_rules(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"preprocessor_config\.json"):
        read_rules(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"patch_size": "wide"}')
    with pytest.raises(ConfigError, match="patch_size"):
        read_rules(tmp_path)


@given(total=st.integers(1, 400_000), count=st.integers(1, 1500), middle=st.booleans())
def test_floats_of_a_range_are_those_of_torch(total: int, count: int, middle: bool) -> None:
    step = total / count
    start = step / 2 if middle else 0.0
    assert float32_range(start, total, step).tolist() == torch.arange(start, total, step).tolist()
