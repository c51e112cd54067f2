"""Sample clips that start at frame numbers."""

from typing import Any

import numpy as np
import numpy.typing as npt

from flashcodec.decoder import BatchT, Decoder
from flashcodec.samplers.common import Policy, Random, check_clips, places_in_clips


def clips_at_random_indices(
    decoder: Decoder[Any, Any, BatchT],
    *,
    num_clips: int = 1,
    num_frames_per_clip: int = 1,
    num_indices_between_frames: int = 1,
    sampling_range_start: int = 0,
    sampling_range_end: int | None = None,
    policy: Policy = "repeat_last",
    rng: Random | None = None,
) -> BatchT:
    """Return clips that start at random frames, each as likely as the others.

    Args:
        decoder: of the video.
        num_clips: how many clips.
        num_frames_per_clip: how many frames each.
        num_indices_between_frames: 1 for consecutive frames, 2 for every other one, ...
        sampling_range_start: the first frame that a clip may start at; negative numbers count from the end.
        sampling_range_end: clips start before this frame; by default such that they end within the video.
        policy: what fills a clip that would reach beyond the end of the video: its last frame ("repeat_last"), its
            frames from the first on ("wrap"), or a ValueError ("error").
        rng: by default numpy.random.default_rng(), other clips at each call.

    Raises ValueError for arguments that make no sense.
    """
    check_clips(decoder, num_frames_per_clip, policy)
    _check(num_clips, num_indices_between_frames)
    span = num_indices_between_frames * (num_frames_per_clip - 1) + 1
    start, end = _range(sampling_range_start, sampling_range_end, span, len(decoder))
    starts = (np.random.default_rng() if rng is None else rng).integers(start, end, num_clips)
    return _clips(decoder, starts, num_frames_per_clip, num_indices_between_frames, policy)


def clips_at_regular_indices(
    decoder: Decoder[Any, Any, BatchT],
    *,
    num_clips: int = 1,
    num_frames_per_clip: int = 1,
    num_indices_between_frames: int = 1,
    sampling_range_start: int = 0,
    sampling_range_end: int | None = None,
    policy: Policy = "repeat_last",
) -> BatchT:
    """Return clips that start at evenly spaced frames.

    The first and the last of the range are included. Where there are more clips than frames in the range, some start at
    the same one. Arguments and errors are those of `clips_at_random_indices`.
    """
    check_clips(decoder, num_frames_per_clip, policy)
    _check(num_clips, num_indices_between_frames)
    span = num_indices_between_frames * (num_frames_per_clip - 1) + 1
    start, end = _range(sampling_range_start, sampling_range_end, span, len(decoder))
    starts = evenly_spaced(start, end - 1, num_clips)
    return _clips(decoder, starts, num_frames_per_clip, num_indices_between_frames, policy)


def evenly_spaced(first: int, last: int, count: int) -> npt.NDArray[np.int64]:
    """Return `count` integers from `first` to `last`, from both ends as torch.linspace does."""
    step = (last - first) / (count - 1) if count > 1 else 0.0
    places = np.arange(count)
    spaced = np.where(places < count // 2, first + step * places, last - step * (count - 1 - places))
    return spaced.astype(np.int64) if count > 1 else np.array([first])


def _check(num_clips: int, num_indices_between_frames: int) -> None:
    if num_clips <= 0:
        raise ValueError(f"num_clips ({num_clips}) must be > 0")
    if num_indices_between_frames <= 0:
        raise ValueError(f"num_indices_between_frames ({num_indices_between_frames}) must be strictly positive")


def _range(start: int, end: int | None, span: int, num_frames: int) -> tuple[int, int]:
    """Return where clips of `span` frames may start: [start, end)."""
    if start < 0:
        start += num_frames
    if start >= num_frames:
        raise ValueError(f"sampling_range_start ({start}) must be smaller than the number of frames ({num_frames}).")
    if end is None:
        end = max(num_frames - span + 1, 1)
        if start >= end:
            raise ValueError(
                f"We determined that sampling_range_end should be {end} for clips to end within the video, "
                f"but sampling_range_start ({start}) must be smaller than that."
            )
    elif end < 0:
        end += num_frames
    end = min(end, num_frames)
    if start >= end:
        raise ValueError(f"sampling_range_start ({start}) must be smaller than sampling_range_end ({end}).")
    return start, end


def _clips(
    decoder: Decoder[Any, Any, BatchT], starts: npt.NDArray[np.int64], length: int, step: int, policy: Policy
) -> BatchT:
    frames = starts[:, None] + np.arange(length) * step
    places = places_in_clips(frames < len(decoder), policy)
    batch = decoder.get_frames_at(np.take_along_axis(frames, places, axis=1).reshape(-1))
    return batch.in_clips(len(starts))
