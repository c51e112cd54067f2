"""Offer FlashCodec as a video backend of Hugging Face transformers.

import flashcodec.plugins.transformers
from transformers.video_utils import load_video

frames, metadata = load_video("video.mp4", num_frames=8, backend="flashcodec")
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from transformers.video_utils import VIDEO_DECODERS, VideoMetadata

from flashcodec.bitstream import Source
from flashcodec.video_decoder import VideoDecoder

BACKEND = "flashcodec"


def read_video(video: Source, sample_indices_fn: Callable[..., Any], **kwargs: Any) -> tuple[Any, VideoMetadata]:
    """Read what `load_video` asks for: frames, uint8 [n, height, width, 3], in the order of the indices, and metadata.

    `sample_indices_fn(metadata=…, **kwargs)` chooses the frames. With a `device` such as "cuda" they are a tensor
    there. Raises DecodeError if the video cannot be decoded, IndexError for a frame that is not there, ValueError for
    any other `device`, RuntimeError for a GPU that is not there.
    """
    device = str(kwargs.get("device") or "cpu")
    kind: Any = VideoDecoder if device == "cpu" else import_module("flashcodec.torch").VideoDecoder
    with kind(video, dimension_order="NHWC", device=device) as decoder:
        return _read(decoder, sample_indices_fn, kwargs)


def _read(decoder: Any, sample_indices_fn: Callable[..., Any], kwargs: dict[str, Any]) -> tuple[Any, VideoMetadata]:
    found = decoder.metadata
    metadata = VideoMetadata(
        total_num_frames=found.num_frames,
        fps=found.average_fps,
        width=found.width,
        height=found.height,
        duration=found.duration_seconds,
        video_backend=BACKEND,
    )
    indices = sample_indices_fn(metadata=metadata, **kwargs)
    metadata.frames_indices = indices
    return decoder.get_frames_at(indices).data, metadata


def register() -> None:
    """Make `backend="flashcodec"` known to transformers. Importing this module does so, too."""
    decoders: dict[str, Any] = VIDEO_DECODERS
    decoders[BACKEND] = read_video


register()
