"""Follow the media rules of Qwen2-VL and Qwen2.5-VL checkpoints: how many frames, of which size, in which patches.

They equal those of transformers' Qwen2VLImageProcessor and Qwen2VLVideoProcessor, whose video part cannot be imported
without torchvision. Where those fail, the rules here go on: see `sample_frames`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from unifiedserve.errors import ConfigError
from unifiedserve.messages.media import ALL_FRAMES, MediaOptions, PromptError, VideoInfo
from unifiedserve.models.frame_sampling import check_sampling, known_fps, spread
from unifiedserve.models.normalisation import moments_of, normalisation
from unifiedserve.models.pictures import interpolation_of
from unifiedserve.models.processor_defaults import CLIP_MEAN, CLIP_STD, QWEN2_VIDEOS, QWEN_IMAGES
from unifiedserve.models.processor_rules import Rules, image_file, raw_rules, video_rules

if TYPE_CHECKING:
    from torch import Tensor

MAX_ASPECT_RATIO = 200
DEFAULT_FPS = 2.0  # what qwen-vl-utils takes, for checkpoints that leave sampling to the caller
#: the second one is what the first checkpoints of Qwen2.5-VL call the first
IMAGE_PROCESSORS = frozenset({"Qwen2VLImageProcessor", "Qwen2_5_VLImageProcessor"})
LIMITS = {"min_pixels": "shortest_edge", "max_pixels": "longest_edge"}  # the same, by their names within `size`
#: with their names in config.json's vision_config
PATCH_FIELDS = {
    "patch_size": "patch_size",
    "temporal_patch_size": "temporal_patch_size",
    "merge_size": "spatial_merge_size",
}
SAMPLING_FIELDS = frozenset({"fps", "num_frames", "min_frames", "max_frames"})
BUDGET_FIELDS = frozenset({"cap_pixels_per_frame", "max_video_tokens"})

_MOST_PIXELS = 1 << 40  # no checkpoint means more
Edge = Annotated[int, Meta(ge=1, le=1024)]


class MediaRules(msgspec.Struct, frozen=True):
    """Read one processor's JSON. Defaults are those of Qwen2-VL's classes in transformers."""

    min_pixels: Annotated[int, Meta(ge=1, le=_MOST_PIXELS)]
    max_pixels: Annotated[int, Meta(ge=1, le=_MOST_PIXELS)]
    patch_size: Edge = 14
    temporal_patch_size: Edge = 2
    merge_size: Edge = 2
    do_rescale: bool | None = True
    rescale_factor: float | None = 1 / 255
    do_normalize: bool | None = True
    image_mean: tuple[float, ...] | None = CLIP_MEAN
    image_std: tuple[float, ...] | None = CLIP_STD
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    min_frames: int = 4
    max_frames: int = 768
    num_frames: int | None = None
    fps: float | None = None
    cap_pixels_per_frame: bool | None = None
    max_video_tokens: int = 128000

    @staticmethod
    def read(rules: Rules) -> MediaRules:
        """Take what is followed here of a processor's rules; raises ConfigError for what cannot be."""
        rules.check(SAMPLING_FIELDS | BUDGET_FIELDS | LIMITS.keys() | PATCH_FIELDS.keys())
        rules.require("do_resize", True)
        moments_of(rules)
        values = {**rules.values, **_limits(rules), "interpolation": interpolation_of(rules)}
        known = {name: value for name, value in values.items() if name in MediaRules.__struct_fields__}
        try:
            return msgspec.convert(known, MediaRules)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{rules.place}: {error}") from error

    @property
    def row_bytes(self) -> int:
        return 3 * self.temporal_patch_size * self.patch_size**2

    def normalisation(self) -> tuple[Tensor, Tensor]:
        """Return float32 mean and deviation of uint8 values, one of each a row element."""
        moments = (self.image_mean, self.image_std) if self.do_normalize else (None, None)
        mean, deviation = normalisation(self.rescale_factor if self.do_rescale else None, *moments)
        elements = self.row_bytes // 3
        return mean.repeat_interleave(elements), deviation.repeat_interleave(elements)


def read_rules(model_dir: Path, video_defaults: Mapping[str, Any] = QWEN2_VIDEOS) -> tuple[MediaRules, MediaRules]:
    """Read the image and the video rules; `video_defaults` are those of the family's video processor."""
    image, video = read_files(model_dir, video_defaults)
    return MediaRules.read(image), MediaRules.read(video)


def read_files(model_dir: Path, video_defaults: Mapping[str, Any]) -> tuple[Rules, Rules]:
    """Read all that the files say of images and of videos."""
    place, given = image_file(model_dir)
    if not given:
        raise ConfigError(f"{place}: no such file; it holds the rules for images")
    video = video_rules(model_dir, video_defaults)
    check_sampling(video)
    return raw_rules(place, given, QWEN_IMAGES), video


def check_patches(rules: Rules, vision: Any) -> None:
    """Raise ConfigError for patches that are not those of the vision encoder."""
    for name, of_encoder in PATCH_FIELDS.items():
        if rules[name] != getattr(vision, of_encoder):
            raise rules.error(name, f"{getattr(vision, of_encoder)}, as config.json's vision_config.{of_encoder}")


def _limits(rules: Rules) -> dict[str, int]:
    """Return the least and the most pixels, which older files hold beside `size`."""
    size = dict(rules["size"]) if isinstance(rules["size"], Mapping) else {}
    for name, edge in LIMITS.items():
        if (value := rules.values.get(name)) is not None:
            size[edge] = value
            size.pop(name, None)
    known = isinstance(rules["size"], Mapping) and size.keys() == set(LIMITS.values())
    if not known or not all(isinstance(pixels, int) for pixels in size.values()):
        raise rules.error("size", "the shortest_edge and longest_edge, in pixels of a whole picture")
    least, most = (size[edge] for edge in LIMITS.values())
    if least > most:
        raise rules.error("size", f"such that at least {least} pixels are at most {most}")
    return {"min_pixels": least, "max_pixels": most}


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
    return spread(total, count, 0)


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
