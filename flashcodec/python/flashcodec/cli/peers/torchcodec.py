"""Read by TorchCodec. Its own Resize works while the picture is converted; torch's interpolate takes about as long."""

from importlib import import_module
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import torchvision_operators
from .sharing import Indices, Pixels, Size, shared

torchvision_operators.define()
_decoders: Any = import_module("torchcodec.decoders")
_transforms: Any = import_module("torchcodec.transforms")


def frames(path: str, indices: Indices, size: Size, threads: int) -> Pixels:
    """Read with TorchCodec's defaults: one thread, exact seeking."""
    return _decoded(path, indices, size)


def threaded(path: str, indices: Indices, size: Size, threads: int) -> Pixels:
    """Read with FFmpeg's own threads."""
    return _decoded(path, indices, size, threads=threads)


def approximate(path: str, indices: Indices, size: Size, threads: int) -> Pixels:
    """Read without the scan of the file that exact seeking needs."""
    return _decoded(path, indices, size, seek_mode="approximate")


def split(path: str, indices: Indices, size: Size, threads: int) -> Pixels:
    """Read with a single-threaded decoder for each of `threads` shares of the indices."""
    return shared(frames, path, indices, size, threads)


def split_approximate(path: str, indices: Indices, size: Size, threads: int) -> Pixels:
    """Read as `split` does, without the scans of the file."""
    return shared(approximate, path, indices, size, threads)


def opened(path: str, indices: Indices, size: Size, threads: int) -> npt.NDArray[np.int64]:
    """Open the file with exact seeking; return the numbers of its frames."""
    return np.arange(len(_decoders.VideoDecoder(path)))


def _decoded(
    path: str, indices: Indices, size: Size, seek_mode: Literal["exact", "approximate"] = "exact", threads: int = 1
) -> Pixels:
    decoder = _decoders.VideoDecoder(
        path,
        dimension_order="NHWC",
        seek_mode=seek_mode,
        num_ffmpeg_threads=threads,
        transforms=None if size is None else [_transforms.Resize(size)],
    )
    pixels: Pixels = decoder.get_frames_at(indices.tolist()).data.numpy()
    return pixels
