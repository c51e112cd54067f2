"""Sample clips that start at times."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from flashcodec.decoder import BatchT, Decoder
from flashcodec.samplers.common import Policy, Random, check_clips, places_in_clips


def clips_at_random_timestamps(
    decoder: Decoder[Any, Any, BatchT],
    *,
    num_clips: int = 1,
    num_frames_per_clip: int = 1,
    seconds_between_frames: float | None = None,
    sampling_range_start: float | None = None,
    sampling_range_end: float | None = None,
    policy: Policy = "repeat_last",
    rng: Random | None = None,
) -> BatchT:
    """Return clips that start at random times, each as likely as the others.

    Args:
        decoder: of the video.
        num_clips: how many clips.
        num_frames_per_clip: how many frames each.
        seconds_between_frames: what lies between the times at which a clip's frames are on show; by default
            1 / average_fps.
        sampling_range_start: seconds, the earliest start of a clip; by default the first frame's time.
        sampling_range_end: seconds; clips start before it. By default such that they end within the video.
        policy: what fills a clip that would reach beyond the end of the video: its last frame ("repeat_last"), its
            frames from the first on ("wrap"), or a ValueError ("error").
        rng: by default numpy.random.default_rng(), other clips at each call.

    Raises ValueError for arguments that make no sense.
    """
    check_clips(decoder, num_frames_per_clip, policy)
    if num_clips <= 0:
        raise ValueError(f"num_clips ({num_clips}) must be > 0")
    step = _step(decoder, seconds_between_frames)
    start, end = _range(decoder, sampling_range_start, sampling_range_end, (num_frames_per_clip - 1) * step)
    starts = (np.random.default_rng() if rng is None else rng).random(num_clips) * (end - start) + start
    return _clips(decoder, starts, num_frames_per_clip, step, policy)


def clips_at_regular_timestamps(
    decoder: Decoder[Any, Any, BatchT],
    *,
    seconds_between_clip_starts: float,
    num_frames_per_clip: int = 1,
    seconds_between_frames: float | None = None,
    sampling_range_start: float | None = None,
    sampling_range_end: float | None = None,
    policy: Policy = "repeat_last",
) -> BatchT:
    """Return clips that start every `seconds_between_clip_starts` seconds of the range.

    Other arguments and errors as those of `clips_at_random_timestamps`.
    """
    check_clips(decoder, num_frames_per_clip, policy)
    if seconds_between_clip_starts <= 0:
        raise ValueError(f"seconds_between_clip_starts ({seconds_between_clip_starts}) must be > 0")
    step = _step(decoder, seconds_between_frames)
    start, end = _range(decoder, sampling_range_start, sampling_range_end, (num_frames_per_clip - 1) * step)
    count = math.ceil((end - start) / seconds_between_clip_starts)
    starts = start + np.arange(count) * seconds_between_clip_starts
    return _clips(decoder, starts[starts < end], num_frames_per_clip, step, policy)


def _step(decoder: Decoder[Any, Any, BatchT], seconds_between_frames: float | None) -> float:
    if decoder.metadata.average_fps is None:
        raise ValueError("Could not infer average fps from video metadata; use an index-based sampler instead.")
    if seconds_between_frames is None:
        return 1 / decoder.metadata.average_fps
    if seconds_between_frames <= 0:
        raise ValueError(f"seconds_between_frames ({seconds_between_frames}) must be > 0")
    return seconds_between_frames


def _range(
    decoder: Decoder[Any, Any, BatchT], start: float | None, end: float | None, span: float
) -> tuple[float, float]:
    """Return where clips whose last frame is shown `span` seconds after their first may start: [start, end)."""
    first, last = decoder.metadata.begin_stream_seconds, decoder.metadata.end_stream_seconds
    if last is None:
        raise ValueError("Could not infer stream end from video metadata; use an index-based sampler instead.")
    if start is None:
        start = first
    elif start < first:
        raise ValueError(f"sampling_range_start ({start}) must be at least {first}")
    elif start >= last:
        raise ValueError(f"sampling_range_start ({start}) must be smaller than {last}")
    if end is None:
        end = last - span
    elif end <= first:
        raise ValueError(f"sampling_range_end ({end}) must be at least {first}")
    if start >= end:
        raise ValueError(f"sampling_range_start ({start}) must be smaller than sampling_range_end ({end})")
    return start, min(end, last)


def _clips(
    decoder: Decoder[Any, Any, BatchT], starts: npt.NDArray[np.floating[Any]], length: int, step: float, policy: Policy
) -> BatchT:
    times = starts[:, None] + np.arange(length) * step
    places = places_in_clips(times < decoder.metadata.end_stream_seconds, policy)
    batch = decoder.get_frames_played_at(np.take_along_axis(times, places, axis=1).reshape(-1))
    return batch.in_clips(len(starts))
