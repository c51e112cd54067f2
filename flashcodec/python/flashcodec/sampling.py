"""Sample frames of a video in one call."""

import operator
from typing import Any

import numpy as np

from flashcodec.bitstream import Bitstream, Indices, Source, to_indices
from flashcodec.decoder import Order, Size
from flashcodec.frames import FrameBatch
from flashcodec.layouts import Interpolation
from flashcodec.reading import Progress
from flashcodec.timeline import Numbers, Seconds, Timeline
from flashcodec.video_decoder import VideoDecoder


def sample(
    source: Source | Bitstream,
    *,
    num_frames: int | None = None,
    fps: float | None = None,
    timestamps: Seconds | None = None,
    indices: Indices | None = None,
    size: Size | None = None,
    order: Order = "NHWC",
    interpolation: Interpolation = "bicubic",
    progress: Progress | None = None,
    **options: Any,
) -> FrameBatch:
    """Return frames of a video, at a size, with their numbers and times.

    Which ones is said by exactly one of:
        num_frames: so many, evenly spaced, the first and the last of the video included:
            round(linspace(0, n - 1, num_frames)), as Qwen-VL's processors do. 1 is the first frame. A video with
            fewer frames gives each of them once.
        fps: the frames shown at the video's begin and every 1 / fps seconds from there: duration * fps of them,
            rounded, but one at least. No frame comes twice: above the video's own rate, that is every frame.
        timestamps: the frames shown at these times, in seconds, in this order.
        indices: the frames of these numbers, in this order; negative ones count from the end.

    Args:
        source: path, bytes-like or file-like object, or Bitstream.
        size: (height, width), or the shorter side; by default the video's.
        order: "NHWC" or "NCHW".
        interpolation: "bicubic", "bilinear" or "area", always antialiased.
        progress: called with (frames done, frames in all).
        options: the others of VideoDecoder: snap, fast, on_error, num_threads, ...

    Returns a batch with data uint8 [n, height, width, 3] or [n, 3, height, width].

    Raises ValueError for arguments that make no sense, IndexError for times and numbers outside of the video,
    DecodeError for a source that cannot be decoded.
    """
    with VideoDecoder(source, size=size, dimension_order=order, interpolation=interpolation, **options) as decoder:
        frames = frames_to_sample(decoder.bitstream, num_frames, fps, timestamps, indices)
        return decoder.get_frames_at(frames, progress=progress)


def frames_to_sample(
    stream: Bitstream,
    num_frames: int | None = None,
    fps: float | None = None,
    timestamps: Seconds | None = None,
    indices: Indices | None = None,
) -> Numbers:
    """Return int64 [n], the frames that `sample` takes of a stream; arguments and errors as there."""
    if sum(choice is not None for choice in (num_frames, fps, timestamps, indices)) != 1:
        raise ValueError("give exactly one of num_frames, fps, timestamps and indices")
    if num_frames is not None:
        return evenly_spaced(stream.num_frames, num_frames)
    timeline = Timeline(stream.pts_seconds, stream.end_seconds)
    if fps is not None:
        _, frames = timeline.at_rate(timeline.begin, timeline.end, fps)
        return np.unique(frames) if frames.size else np.zeros(1, np.int64)
    if timestamps is not None:
        return timeline.at(timestamps)
    assert indices is not None
    return to_indices(indices)


def evenly_spaced(available: int, wanted: int) -> Numbers:
    """Return int64 [min(wanted, available)], the rule for `num_frames` of `sample`."""
    if operator.index(wanted) < 1:
        raise ValueError(f"num_frames must be positive, got {wanted}")
    return np.linspace(0, available - 1, min(wanted, available)).round().astype(np.int64)
