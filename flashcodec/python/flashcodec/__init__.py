"""Decode videos GOP-parallel, straight into what a model reads.

A module is imported when one of its names is read, so layouts alone come without FFmpeg.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from flashcodec.serving import Analysis, DecodingOutput, FlashCodec
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

#: the names in each module
_MODULES: dict[str, tuple[str, ...]] = {
    "bitstream": (
        "Bitstream",
        "Doubt",
        "Gop",
        "Indices",
        "Plan",
        "Segment",
        "Source",
        "VideoStreamMetadata",
        "analyse_bitstream",
    ),
    "errors": ("DamagedError", "DecodeError", "LimitError", "NoVideoError", "SourceError", "UnsupportedError"),
    "frames": ("Frame", "FrameBatch"),
    "image": (),
    "layouts": ("Layout", "PatchLayout", "RGBLayout", "TileLayout"),
    "limits": ("Limits",),
    "rank_parts": ("RankPart",),
    "samplers": (),
    "sampling": ("sample",),
    "serving": ("Analysis", "DecodingOutput", "FlashCodec"),
    "video_decoder": ("VideoDecoder", "yuv_frames_at"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"flashcodec.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'flashcodec' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"flashcodec.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def add_decoding_request(source: Bitstream | Source, indices: Indices, layout: Layout | None = None) -> int:
    """Call `FlashCodec.add_decoding_request` of the process-wide instance."""
    return _codec().add_decoding_request(source, indices, layout)


def get_decoding_output(timeout: float | None = None) -> DecodingOutput | None:
    """Call `FlashCodec.get_decoding_output` of the process-wide instance."""
    return _codec().get_decoding_output(timeout)


def cancel(request: int) -> None:
    """Call `FlashCodec.cancel` of the process-wide instance."""
    _codec().cancel(request)


def _codec() -> FlashCodec:
    from flashcodec.serving import default_codec

    return default_codec()
