"""Do one job, wherever it is called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from flashcodec.image import image_in_layout, image_size

import flashcodec
from ipc_buffers import Arena
from unifiedserve.messages.media import DecodingWork, Source, VideoInfo
from unifiedserve.reading.jobs import ImageHead, ImagePixels, Job, VideoHead, VideoWork


def read(job: Job) -> bytes | memoryview:
    """Return the result of a job. Raises DecodeError, OSError and whatever else damaged media lead to."""
    source = opened(job.source)
    match job:
        case ImageHead():
            return msgspec.msgpack.encode(image_size(source, job.max_pixels))
        case VideoHead():
            return msgspec.msgpack.encode(_video_info(source))
        case VideoWork():
            work = decoding_work(flashcodec.analyse_bitstream(source), np.frombuffer(job.frames, "<i4"))
            return msgspec.msgpack.encode(work)
        case ImagePixels():
            return image_in_layout(source, job.layout, job.max_pixels, job.background).reshape(-1).data


def pixels_of(job: ImagePixels) -> int:
    """Return how many pixels an image has, by its head. Raises as `read`."""
    width, height = image_size(opened(job.source), job.max_pixels)
    return width * height


def opened(source: Source) -> memoryview | Path:
    """Return the bytes of a medium, without a copy, or the file that has them."""
    if source.arena is None:
        return Path(source.path or "")
    buffer = Arena.attach(source.arena).buffer()  # any view of it keeps the memory mapped
    return buffer[source.start : source.start + source.size]


def decoding_work(bitstream: flashcodec.Bitstream, frames: Sequence[int] | npt.NDArray[np.int32]) -> DecodingWork:
    """Return what decoding these frames takes, each packet once. Raises DecodeError for packets that cannot be read."""
    plan = bitstream.plan(np.asarray(frames, np.int64), temporal_patch_size=len(frames))
    return DecodingWork(plan.packets_needed, plan.packets_total, plan.estimated_seconds)


def _video_info(source: memoryview | Path) -> VideoInfo:
    """Return what the processor must know of a video. Raises flashcodec.DecodeError."""
    bitstream = flashcodec.analyse_bitstream(source)
    last = bitstream.num_frames - 1
    duration = float(bitstream.pts_seconds[last] + bitstream.durations_seconds[last] - bitstream.pts_seconds[0])
    return VideoInfo(
        num_frames=bitstream.num_frames,
        fps=bitstream.metadata.average_fps or bitstream.num_frames / max(duration, 1e-6),
        duration=duration,
        width=bitstream.width,
        height=bitstream.height,
        pts_seconds=bitstream.pts_seconds.tolist(),
    )
