"""Read frames by TorchCodec, on cores or on a GPU's NVDEC."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unifiedserve.messages.wire import MediaSource
from unifiedserve.reading.work import opened
from unifiedserve.worker.vision.other_videos import Frames, OtherDecoder, Read


def torchcodec(device: str) -> OtherDecoder:
    """Return the decoder for "cpu" or "cuda:0". Raises ImportError if the package torchcodec is not there."""
    decoders = import_module("torchcodec.decoders")

    def open_video(source: MediaSource) -> Read:
        found: Any = opened(source.where)
        if not isinstance(found, Path):
            found = torch.from_numpy(np.frombuffer(found, np.uint8))
        decoder = _decoder(decoders, found, device)

        def read(frames: list[int]) -> Frames:
            pixels: Frames = decoder.get_frames_at(frames).data.cpu().numpy()
            return pixels

        return read

    return OtherDecoder("TorchCodec", open_video)


def _decoder(decoders: Any, source: Any, device: str) -> Any:
    options = {"dimension_order": "NHWC", "num_ffmpeg_threads": 1, "seek_mode": "exact"}
    if device == "cpu":
        return decoders.VideoDecoder(source, **options)
    with decoders.set_cuda_backend("beta"):  # the one that skips what nobody asked for
        return decoders.VideoDecoder(source, device=device, **options)
