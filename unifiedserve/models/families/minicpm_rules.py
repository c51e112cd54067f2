"""Cut pictures into slices and sample videos by MiniCPM-V's rules; no weights, no torch."""

import math

import numpy as np

from unifiedserve.messages.media import ALL_FRAMES, MediaOptions, VideoInfo
from unifiedserve.models.frame_sampling import known_fps

STEP = 0.1  # seconds between the frames of a long video that are chosen from

Size = tuple[int, int]


def slices(height: int, width: int, most: int, resolution: int) -> Size | None:
    """Return rows and columns of slices, about as many as the picture has pixels for; None if it needs none.

    Of the grids whose aspect ratio is nearest to the picture's, that of more rows.
    """
    wanted = min(math.ceil(width * height / resolution**2), most)
    if wanted <= 1:
        return None
    ratio = math.log(width / height)
    counts = [count for count in (wanted - 1, wanted, wanted + 1) if 1 < count <= most]
    grids = [(rows, count // rows) for count in counts for rows in range(1, count + 1) if count % rows == 0]
    return min(grids, key=lambda grid: (abs(ratio - math.log(grid[1] / grid[0])), -grid[0]))


def fitted(height: float, width: float, resolution: int, step: int, upscale: bool) -> Size:
    """Return a size in multiples of `step`, of about `resolution`² pixels. Smaller ones grow only with `upscale`."""
    if upscale or height * width > resolution**2:
        ratio = width / height
        height = int(resolution / math.sqrt(ratio))
        width = int(height * ratio)
    return divisible(height, step), divisible(width, step)


def sample(video: VideoInfo, options: MediaOptions, most: int) -> tuple[int, ...]:
    """Sample a frame a second (or `fps`); of longer videos `most`, evenly in time; or `num_frames`, evenly."""
    total, fps = video.num_frames, known_fps(video)
    duration, limit = video.duration or total / fps, options.max_frames or most
    if options.num_frames is not None:
        wanted = total if options.num_frames == ALL_FRAMES else options.num_frames
        return tuple(_chosen(total, min(wanted, options.max_frames or wanted)))
    if options.fps is None and duration > limit:
        times = [round(i * STEP, 1) for i in _chosen(int(duration / STEP), limit)]
    else:
        step = 1 / min(options.fps, fps) if options.fps else 1
        times = [i * step for i in _chosen(math.ceil(duration / step), limit)]
    return tuple(min(int(time * fps), total - 1) for time in times)


def _chosen(count: int, most: int) -> list[int]:
    """Choose all of `count` numbers from 0, or `most` of them from first to last."""
    chosen: list[int] = np.linspace(0, count - 1, min(count, most), dtype=int).tolist()
    return chosen


def divisible(length: float, divisor: int) -> int:
    return max(round(length / divisor) * divisor, divisor)
