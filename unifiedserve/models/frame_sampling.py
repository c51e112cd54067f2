"""Sample the frames that a model sees, for families that spread them evenly."""

import math

import numpy as np
from numpy.typing import NDArray

from unifiedserve.messages.media import ALL_FRAMES, MediaOptions, VideoInfo
from unifiedserve.models.processor_rules import Rules

DEFAULT_FRAMES = 32  # frames where neither the request nor the checkpoint says how many
_VECTOR = 8  # floats
UNKNOWN_FPS = 24.0  # what transformers assumes


def frame_count(rules: Rules, video: VideoInfo, options: MediaOptions, default: int = DEFAULT_FRAMES) -> int:
    """Return how many frames to take: by the options, else the checkpoint's rules, else `default`; at most all."""
    total = video.num_frames
    count, fps = options.num_frames, options.fps
    if count is None and fps is None:
        count, fps = rules["num_frames"], rules["fps"]
    if count == ALL_FRAMES:
        count = total
    elif count is None:
        count = int(total / known_fps(video) * fps) if fps else default
    return max(1, min(count, total, options.max_frames or total))


def check_sampling(rules: Rules) -> None:
    """Raise ConfigError for rules that choose frames both by their number and by their rate."""
    if rules["num_frames"] is not None and rules["fps"] is not None:
        raise rules.error("num_frames", f"null beside an fps, {rules['fps']}")


def spread(total: int, count: int, shift: float) -> tuple[int, ...]:
    """Choose `count` of `total` frames, evenly from `shift` on, as transformers does."""
    # rounding may add an index past the end, which is cut off
    return tuple(float32_range(shift, total, total / count).astype(np.int32)[:count].tolist())


def float32_range(start: float, end: float, step: float) -> NDArray[np.float32]:
    """Return what torch's `arange` does of float32 on a processor, float by float.

    It rounds the first of each vector of 8 and then each of its numbers, and what two vectors do not fill once.
    """

    def rounded(first: float | NDArray[np.float32], steps: NDArray[np.longdouble]) -> NDArray[np.float32]:
        return (first + steps * step).astype(np.float64).astype(np.float32)  # a product and its sum are rounded as one

    numbers = np.arange(math.ceil((end - start) / step)).astype(np.longdouble)
    whole = len(numbers) // (2 * _VECTOR) * 2 * _VECTOR
    inner = numbers[:whole] % _VECTOR
    first = rounded(start, numbers[:whole] - inner)
    return np.concatenate([rounded(first, inner), rounded(start, numbers[whole:])])


def evenly(total: int, count: int) -> tuple[int, ...]:
    """Choose `count` of `total` frames, each the first of an equal share: transformers' own way."""
    return tuple(i * total // count for i in range(count))


def known_fps(video: VideoInfo) -> float:
    return video.fps if 0 < video.fps < math.inf else UNKNOWN_FPS
