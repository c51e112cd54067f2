"""FlashCodec for programs written for TorchCodec: the same classes and functions, with tensors.

    from flashcodec.torch import VideoDecoder  # instead of: from torchcodec.decoders import VideoDecoder

is all that changes; FrameBatch, Frame and the samplers are here, too. Tensors share their memory with what was
decoded. The random samplers draw from torch's generator, so that torch.manual_seed gives TorchCodec's clips.
"""

import os
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from flashcodec import samplers
from flashcodec.bitstream import Bitstream, FileLike
from flashcodec.decoder import Decoder, Order, SeekMode, Size
from flashcodec.frames import Frame as NumpyFrame
from flashcodec.frames import FrameBatch as NumpyFrameBatch
from flashcodec.frames import FrameBatchOf, FrameOf
from flashcodec.layouts import Interpolation
from flashcodec.limits import Limits
from flashcodec.reading import Allocator, Memory, OnError, host_memory
from flashcodec.samplers import clips_at_regular_indices, clips_at_regular_timestamps
from flashcodec.serving import gpu_numbers

__all__ = [
    "Frame",
    "FrameBatch",
    "VideoDecoder",
    "clips_at_random_indices",
    "clips_at_random_timestamps",
    "clips_at_regular_indices",
    "clips_at_regular_timestamps",
]

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | FileLike | torch.Tensor


class Frame(FrameOf[torch.Tensor]):
    __doc__ = FrameOf.__doc__


class FrameBatch(FrameBatchOf[torch.Tensor]):
    __doc__ = FrameBatchOf.__doc__


class VideoDecoder(Decoder[torch.Tensor, Frame, FrameBatch]):
    """Frames of one video stream by index or time, as tensors. Arguments are TorchCodec's, then FlashCodec's own:

    Args:
        source: path, bytes-like object, 1-d uint8 tensor or file-like object with read and seek, or Bitstream.
        num_ffmpeg_threads: decoding threads of its own; by default 0, which shares the process-wide pool, one
            thread a core.
        device: "cpu", or "cuda" or "cuda:1" for tensors on a GPU, where NVDEC decodes what it does faster than cores;
            by default torch's default device.
        transforms: only None. `size` resizes while decoding.
        custom_frame_mappings: not read: analysis finds out what they say about as fast.
        size, interpolation, snap, snap_tolerance, fast, on_error, limits: see flashcodec.VideoDecoder, as for the
            others and what is raised.
    """

    def __init__(
        self,
        source: Source | Bitstream,
        *,
        stream_index: int | None = None,
        dimension_order: Order = "NCHW",
        num_ffmpeg_threads: int = 0,
        device: str | torch.device | None = None,
        seek_mode: SeekMode = "exact",
        transforms: Sequence[Any] | None = None,
        custom_frame_mappings: object = None,
        size: Size | None = None,
        interpolation: Interpolation = "bicubic",
        snap: Literal["keyframe"] | None = None,
        snap_tolerance: float | None = None,
        fast: bool = False,
        on_error: OnError = "raise",
        limits: Limits | None = None,
    ) -> None:
        if num_ffmpeg_threads is None:
            raise ValueError("num_ffmpeg_threads should be an int, not None")
        if transforms:
            raise ValueError("transforms are not supported: give size=..., and transform the tensors afterwards")
        if custom_frame_mappings is not None and seek_mode == "approximate":
            raise ValueError("custom_frame_mappings and seek_mode='approximate' contradict each other")
        super().__init__(
            _bytes_of(source) if isinstance(source, torch.Tensor) else source,
            stream_index=stream_index,
            dimension_order=dimension_order,
            num_threads=num_ffmpeg_threads,
            device=str(torch.get_default_device() if device is None else device),
            seek_mode=seek_mode,
            size=size,
            interpolation=interpolation,
            snap=snap,
            snap_tolerance=snap_tolerance,
            fast=fast,
            on_error=on_error,
            limits=limits,
        )

    _gpu: torch.device | None = None

    def _gpus(self, device: str) -> tuple[int, ...]:
        if device.partition(":")[0] == "cpu":
            return ()
        (number,) = gpu_numbers(device)
        self._gpu = torch.device("cuda", number)
        return (number,)

    def _allocator(self) -> Allocator:
        return host_memory if self._gpu is None else partial(_gpu_memory, self._gpu)

    def _channels_first(self, data: Any) -> Any:
        return data.transpose(0, 3, 1, 2) if self._gpu is None else data.permute(0, 3, 1, 2)

    def _pixels(self, data: Any) -> torch.Tensor:
        return _tensor(data)

    def _frame(self, frame: NumpyFrame) -> Frame:
        return Frame(_tensor(frame.data), frame.pts_seconds, frame.duration_seconds)

    def _batch(self, batch: NumpyFrameBatch) -> FrameBatch:
        """Return tensors; times and numbers are in ordinary memory wherever the frames are."""
        indices = None if batch.indices is None else torch.from_numpy(batch.indices)
        times, durations = map(torch.from_numpy, (batch.pts_seconds, batch.duration_seconds))
        return FrameBatch(_tensor(batch.data), times, durations, indices, batch.damaged)


class _TorchRandom:
    """torch's default generator as `samplers` use one."""

    def integers(self, low: int, high: int, size: int) -> npt.NDArray[np.int64]:
        return np.asarray(torch.randint(low=low, high=high, size=(size,)))

    def random(self, size: int) -> npt.NDArray[np.float64]:
        return np.asarray(torch.rand(size, dtype=torch.float64))


clips_at_random_indices = partial(samplers.clips_at_random_indices, rng=_TorchRandom())
clips_at_random_timestamps = partial(samplers.clips_at_random_timestamps, rng=_TorchRandom())


def _gpu_memory(device: torch.device, shape: tuple[int, ...]) -> Memory:
    """Allocate the memory of a tensor, and wait for what is still at work on it."""
    tensor = torch.empty(shape, dtype=torch.uint8, device=device)
    torch.cuda.current_stream(device).synchronize()
    return Memory(tensor, (tensor.data_ptr(), tensor.nbytes))


def _tensor(data: Any) -> torch.Tensor:
    return data if isinstance(data, torch.Tensor) else torch.from_numpy(data)


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    if tensor.dtype != torch.uint8 or tensor.ndim != 1:
        raise ValueError(f"a source tensor must be 1-d of uint8, got {tensor.ndim}-d of {tensor.dtype}")
    data: Any = tensor.contiguous().numpy()
    return memoryview(data)
