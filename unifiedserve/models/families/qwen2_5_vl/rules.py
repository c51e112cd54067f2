"""The media rules of Qwen2-VL and Qwen2.5-VL checkpoints: how many frames, of which size, in which patches.

They equal those of transformers' Qwen2VLImageProcessor and Qwen2VLVideoProcessor, whose video part cannot be imported
without torchvision. Where those fail, the rules here go on: see `sample_frames`.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch
from msgspec import Meta

from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import read_json
from unifiedserve.messages.media import ALL_FRAMES, MediaOptions, PromptError, VideoInfo
from unifiedserve.models.frame_sampling import known_fps
from unifiedserve.models.normalisation import normalisation

MAX_ASPECT_RATIO = 200
DEFAULT_FPS = 2.0  # what qwen-vl-utils takes, for checkpoints that leave sampling to the caller
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
IMAGE_DEFAULTS = {"min_pixels": 56 * 56, "max_pixels": 28 * 28 * 1280}
QWEN2_VIDEO_DEFAULTS = {"min_pixels": 128 * 28 * 28, "max_pixels": 768 * 28 * 28}

_MOST_PIXELS = 1 << 40  # no checkpoint means more
Edge = Annotated[int, Meta(ge=1, le=1024)]


class MediaRules(msgspec.Struct, frozen=True):
    """One processor's JSON; defaults are those of Qwen2-VL's classes in transformers."""

    min_pixels: Annotated[int, Meta(ge=1, le=_MOST_PIXELS)]
    max_pixels: Annotated[int, Meta(ge=1, le=_MOST_PIXELS)]
    patch_size: Edge = 14
    temporal_patch_size: Edge = 2
    merge_size: Edge = 2
    do_rescale: bool = True
    rescale_factor: float = 1 / 255
    do_normalize: bool = True
    image_mean: tuple[float, ...] = CLIP_MEAN
    image_std: tuple[float, ...] = CLIP_STD
    min_frames: int = 4
    max_frames: int = 768
    num_frames: int | None = None
    fps: float | None = None
    cap_pixels_per_frame: bool | None = None
    max_video_tokens: int = 128000

    @staticmethod
    def read(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> "MediaRules":
        """Read the rules from a processor's JSON object and the class's own defaults."""
        given = {name: value for name, value in values.items() if value is not None}
        size = given.get("size", {})
        edges = {"min_pixels": "shortest_edge", "max_pixels": "longest_edge"}
        sizes = {name: size[edge] for name, edge in edges.items() if size.get(edge) is not None}
        return msgspec.convert({**defaults, **sizes, **given}, MediaRules)

    @property
    def row_bytes(self) -> int:
        return 3 * self.temporal_patch_size * self.patch_size**2

    def normalisation(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return float32 mean and deviation of uint8 values, one of each a row element."""
        moments = (self.image_mean, self.image_std) if self.do_normalize else (None, None)
        mean, deviation = normalisation(self.rescale_factor if self.do_rescale else None, *moments)
        elements = self.row_bytes // 3
        return mean.repeat_interleave(elements), deviation.repeat_interleave(elements)


def read_rules(
    model_dir: Path, video_defaults: Mapping[str, Any] = QWEN2_VIDEO_DEFAULTS
) -> tuple[MediaRules, MediaRules]:
    """Read the image and the video rules from the files that transformers would read, in its order.

    `video_defaults` are those of the family's video processor where they are not MediaRules' own.
    """
    nested = read_json(model_dir / "processor_config.json", default={})
    image = read_json(model_dir / "preprocessor_config.json", default={})
    video = read_json(model_dir / "video_preprocessor_config.json", default={})
    image = nested.get("image_processor") or image
    video = nested.get("video_processor") or video or image
    if not image:
        raise ConfigError(f"{model_dir}: no preprocessor_config.json, which holds the rules for images")
    try:
        return (
            MediaRules.read(image, IMAGE_DEFAULTS),
            MediaRules.read(video, video_defaults),
        )
    except msgspec.ValidationError as error:
        raise ConfigError(f"{model_dir}: the rules for images or videos are malformed: {error}") from error


def resized(height: int, width: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """Resize as Qwen2-VL's `smart_resize`: multiples of `factor` near the shape, min_pixels ≤ area ≤ max_pixels.

    Raises PromptError for an empty image, an aspect ratio above 200, or contradicting limits.
    """
    check_shape(height, width)
    if min_pixels > max_pixels:
        raise PromptError(f"min_pixels {min_pixels} is above max_pixels {max_pixels}", "min_pixels")
    rows, columns = round(height / factor) * factor, round(width / factor) * factor
    if rows * columns > max_pixels:
        shrink = math.sqrt((height * width) / max_pixels)
        rows = max(factor, math.floor(height / shrink / factor) * factor)
        columns = max(factor, math.floor(width / shrink / factor) * factor)
    elif rows * columns < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        rows = math.ceil(height * grow / factor) * factor
        columns = math.ceil(width * grow / factor) * factor
    return rows, columns


def check_shape(height: int, width: int) -> None:
    """Raise PromptError for an empty picture or an aspect ratio above 200."""
    if min(height, width) < 1:
        raise PromptError(f"a picture of {width}x{height} pixels has no content")
    if max(height, width) > MAX_ASPECT_RATIO * min(height, width):
        raise PromptError(f"{width}x{height} pixels: the longer side is more than {MAX_ASPECT_RATIO} times the other")


def sample_frames(rules: MediaRules, video: VideoInfo, options: MediaOptions) -> tuple[int, ...]:
    """Return indices of the frames to take: uniform by index, whatever their timestamps.

    As Qwen2VLVideoProcessor.sample_frames, except that a video with fewer frames than asked for gives what it has,
    that there is at least one frame, and that a checkpoint without a sampling rule gets DEFAULT_FPS.
    """
    total, group = video.num_frames, rules.temporal_patch_size
    num_frames = options.num_frames
    if num_frames is None and options.fps is None:
        num_frames = rules.num_frames
    if num_frames == ALL_FRAMES:
        return tuple(range(min(total, options.max_frames or total)))
    if num_frames is None:
        wanted = total / known_fps(video) * (options.fps or rules.fps or DEFAULT_FPS)
        limit = min(options.max_frames or rules.max_frames, total)
        count = math.floor(min(max(wanted, rules.min_frames), limit // group * group) / group) * group
    else:
        limit = min(options.max_frames or total, total)
        count = min(round(num_frames / group), limit // group) * group
    count = max(count, 1)
    # float32, as transformers computes them; rounding may add an index past the end, which is cut off
    indices: list[int] = torch.arange(0, total, total / count).int().tolist()
    return tuple(indices[:count])


def frame_size(rules: MediaRules, height: int, width: int, num_frames: int, options: MediaOptions) -> tuple[int, int]:
    """Return height and width of each of `num_frames` frames after the resize."""
    factor = rules.patch_size * rules.merge_size
    min_pixels, max_pixels = options.min_pixels or rules.min_pixels, options.max_pixels or rules.max_pixels
    if rules.cap_pixels_per_frame:
        total = int(rules.max_video_tokens * factor * factor * 0.9)
        share = total * rules.temporal_patch_size // num_frames
        max_pixels = max(min(max_pixels, share), int(min_pixels * 1.05))
    return resized(height, width, factor, min_pixels, max_pixels)


def image_size(rules: MediaRules, height: int, width: int, options: MediaOptions) -> tuple[int, int]:
    """Return height and width of an image after the resize."""
    return resized(
        height,
        width,
        rules.patch_size * rules.merge_size,
        options.min_pixels or rules.min_pixels,
        options.max_pixels or rules.max_pixels,
    )
