"""Adapt Qwen3-VL, Qwen3.5 and their mixtures of experts. The prompt has times; visual tokens enter several layers."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from unifiedserve.messages.media import ALL_FRAMES, MediaOptions, MediaPlan, VideoInfo
from unifiedserve.models.families.qwen2_5_vl.processor import Qwen25VLProcessor, patch_plan
from unifiedserve.models.families.qwen2_5_vl.rules import MediaRules, check_shape, resized
from unifiedserve.models.frame_sampling import known_fps
from unifiedserve.models.processor_defaults import QWEN3_VIDEOS


class Qwen3VLProcessor(Qwen25VLProcessor):
    video_defaults: ClassVar[Mapping[str, Any]] = QWEN3_VIDEOS

    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        self.visual_dim *= 1 + len(getattr(config.vision_config, "deepstack_visual_indexes", ()))
        self._start = getattr(self.tokenizer, "vision_start_token", "<|vision_start|>")
        self._end = getattr(self.tokenizer, "vision_end_token", "<|vision_end|>")

    def media_text(self, plan: MediaPlan) -> str:
        """Return the text of a video's groups, each behind its time.

        All groups stay within the start and end that templates put around a video's token, as in transformers.
        """
        token = self.placeholders[plan.kind]
        if plan.kind == "image":
            return token
        return "".join(f"<{time:.1f} seconds>{self._start}{token}{self._end}" for time in plan.timestamps)

    def runs(self, plan: MediaPlan) -> list[int]:
        return [plan.tokens_per_unit] * plan.units

    def video_plan(self, video: VideoInfo, options: MediaOptions) -> MediaPlan:
        rules, group = self.video_rules, self.video_rules.temporal_patch_size
        indices = sample_frames(rules, video, options)
        rows, columns = frame_size(rules, video.height, video.width, len(indices), options)
        units = -(-len(indices) // group)
        plan = patch_plan(rules, "video", indices, rows, columns, units=units, seconds=0.0)
        times = [index / known_fps(video) for index in indices]
        times += times[-1:] * (units * group - len(times))
        middles = tuple((times[i] + times[i + group - 1]) / 2 for i in range(0, len(times), group))
        return msgspec.structs.replace(plan, timestamps=middles)


def sample_frames(rules: MediaRules, video: VideoInfo, options: MediaOptions) -> tuple[int, ...]:
    """Return indices of the frames to take: evenly from the first to the last.

    As Qwen3VLVideoProcessor.sample_frames: where a request asks for more than there are, some are taken several times,
    but never so that there are more than the checkpoint's `max_frames`.
    """
    total = video.num_frames
    count = options.num_frames
    if count is None and options.fps is None:
        count = rules.num_frames
    if count == ALL_FRAMES:
        return tuple(range(min(total, options.max_frames or total)))
    if count is None:
        fps = options.fps or rules.fps or QWEN3_VIDEOS["fps"]
        count = max(int(total / known_fps(video) * fps), rules.min_frames)
        count = min(count, options.max_frames or rules.max_frames, total)
    count = max(1, min(count, options.max_frames or max(total, rules.max_frames)))
    return tuple(np.linspace(0, total - 1, count).round().astype(int).tolist())


def frame_size(rules: MediaRules, height: int, width: int, num_frames: int, options: MediaOptions) -> tuple[int, int]:
    """Return height and width of each of `num_frames` frames after the resize.

    A checkpoint's limits are for all frames of a video together; those of a request bound one.
    """
    factor, group = rules.patch_size * rules.merge_size, rules.temporal_patch_size
    frames = max(num_frames, group)
    least, most = rules.min_pixels, rules.max_pixels
    if rules.cap_pixels_per_frame:
        most = frames * max(min(rules.max_video_tokens * factor**2, most // frames), int(least * 1.05))
    if options.min_pixels or options.max_pixels:
        low, high = options.min_pixels or math.ceil(least / frames), options.max_pixels or most // frames
        return resized(height, width, factor, low, high)
    return clip_size(height, width, frames, factor, group, least, most)


def clip_size(
    height: int, width: int, frames: int, factor: int, group: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """Return multiples of `factor` near the shape, with min to max_pixels in all. Frames count in whole groups.

    The `smart_resize` of Glm4vVideoProcessor in transformers, which Qwen3-VL uses for videos.
    """
    check_shape(height, width)
    if min(height, width) < factor:
        scale = max(factor / height, factor / width)
        height, width = int(height * scale), int(width * scale)
    rows, columns = round(height / factor) * factor, round(width / factor) * factor
    pixels = round(frames / group) * group * rows * columns
    if pixels > max_pixels:
        shrink = math.sqrt((frames * height * width) / max_pixels)
        rows = max(factor, math.floor(height / shrink / factor) * factor)
        columns = max(factor, math.floor(width / shrink / factor) * factor)
    elif pixels < min_pixels:
        grow = math.sqrt(min_pixels / (frames * height * width))
        rows = math.ceil(height * grow / factor) * factor
        columns = math.ceil(width * grow / factor) * factor
    return rows, columns
