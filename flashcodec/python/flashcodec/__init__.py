"""Decode videos GOP-parallel, straight into what a model reads."""

from flashcodec import image, samplers
from flashcodec.bitstream import (
    Bitstream,
    Doubt,
    Gop,
    Indices,
    Plan,
    Segment,
    Source,
    VideoStreamMetadata,
    analyse_bitstream,
)
from flashcodec.errors import DamagedError, DecodeError, LimitError, NoVideoError, SourceError, UnsupportedError
from flashcodec.frames import Frame, FrameBatch
from flashcodec.layouts import Layout, PatchLayout, RGBLayout, TileLayout
from flashcodec.limits import Limits
from flashcodec.rank_parts import RankPart
from flashcodec.sampling import sample
from flashcodec.serving import Analysis, DecodingOutput, FlashCodec, default_codec
from flashcodec.video_decoder import VideoDecoder, yuv_frames_at

__all__ = [
    "Analysis",
    "Bitstream",
    "DamagedError",
    "DecodeError",
    "DecodingOutput",
    "Doubt",
    "FlashCodec",
    "Frame",
    "FrameBatch",
    "Gop",
    "Layout",
    "LimitError",
    "Limits",
    "NoVideoError",
    "PatchLayout",
    "Plan",
    "RGBLayout",
    "RankPart",
    "Segment",
    "Source",
    "SourceError",
    "TileLayout",
    "UnsupportedError",
    "VideoDecoder",
    "VideoStreamMetadata",
    "add_decoding_request",
    "analyse_bitstream",
    "cancel",
    "get_decoding_output",
    "image",
    "sample",
    "samplers",
    "yuv_frames_at",
]


def add_decoding_request(source: Bitstream | Source, indices: Indices, layout: Layout | None = None) -> int:
    """Call `FlashCodec.add_decoding_request` of the process-wide instance."""
    return default_codec().add_decoding_request(source, indices, layout)


def get_decoding_output(timeout: float | None = None) -> DecodingOutput | None:
    """Call `FlashCodec.get_decoding_output` of the process-wide instance."""
    return default_codec().get_decoding_output(timeout)


def cancel(request: int) -> None:
    """Call `FlashCodec.cancel` of the process-wide instance."""
    default_codec().cancel(request)
