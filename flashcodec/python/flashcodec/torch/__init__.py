"""Serve programs written for TorchCodec: the same classes and functions, with tensors.

    from flashcodec.torch import VideoDecoder  # instead of: from torchcodec.decoders import VideoDecoder

is all that changes. `flashcodec.torch.decoders`, `.samplers` and `.transforms` stand for TorchCodec's modules of these
names; Frame and FrameBatch are here. Tensors share their memory with what was decoded.
"""

from flashcodec.bitstream import VideoStreamMetadata
from flashcodec.torch.cpu_fallback import CpuFallbackStatus
from flashcodec.torch.decoders import VideoDecoder
from flashcodec.torch.frames import Frame, FrameBatch
from flashcodec.torch.samplers import (
    clips_at_random_indices,
    clips_at_random_timestamps,
    clips_at_regular_indices,
    clips_at_regular_timestamps,
)
from flashcodec.torch.transforms import CenterCrop, DecoderTransform, RandomCrop, Resize

__all__ = [
    "CenterCrop",
    "CpuFallbackStatus",
    "DecoderTransform",
    "Frame",
    "FrameBatch",
    "RandomCrop",
    "Resize",
    "VideoDecoder",
    "VideoStreamMetadata",
    "clips_at_random_indices",
    "clips_at_random_timestamps",
    "clips_at_regular_indices",
    "clips_at_regular_timestamps",
]
