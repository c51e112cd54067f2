"""Provide TorchCodec's VideoDecoder."""

import mmap
import os
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from flashcodec import _core
from flashcodec.bitstream import Bitstream, FileLike, Indices, VideoStreamMetadata
from flashcodec.decoder import Decoder, Order, SeekMode, Size
from flashcodec.errors import ArgumentError, ArgumentTypeError
from flashcodec.frames import Frame as NumpyFrame
from flashcodec.frames import FrameBatch as NumpyFrameBatch
from flashcodec.layouts import Interpolation, Layout, RGBLayout
from flashcodec.limits import Limits
from flashcodec.reading import Allocator, Memory, OnError, host_memory
from flashcodec.serving import gpu_numbers
from flashcodec.timeline import Numbers
from flashcodec.torch.cpu_fallback import CpuFallbackStatus
from flashcodec.torch.frames import Frame, FrameBatch
from flashcodec.torch.mappings import Mappings, check_mappings, read_mappings
from flashcodec.torch.shaping import OutputDtype, Shaping
from flashcodec.torch.transforms import from_torchvision

__all__ = ["CpuFallbackStatus", "VideoDecoder", "VideoStreamMetadata"]

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | mmap.mmap | FileLike | torch.Tensor


class VideoDecoder(Decoder[torch.Tensor, Frame, FrameBatch]):
    """Decode frames of one video stream by index or time, as tensors.

    Arguments are TorchCodec's, then FlashCodec's own:

    Args:
        source: path, bytes-like object, 1-d uint8 tensor or file-like object with read and seek, or Bitstream.
        num_ffmpeg_threads: decoding threads of its own; by default 0, which shares the process-wide pool, one
            thread a core.
        device: "cpu", or "cuda" or "cuda:1" for tensors on a GPU, where NVDEC decodes what it does faster than cores;
            by default torch's default device.
        transforms: what is done to frames, in this order: Resize, CenterCrop and RandomCrop of
            flashcodec.torch.transforms or of torchvision.transforms.v2. `size` is another way to resize.
        custom_frame_mappings: compared with what analysis found: frames are never taken by wrong mappings.
        output_dtype: torch.uint8, 0 to 255; torch.float32, 0 to 1, which keeps what sources of more than 8 bits have;
            or "auto", float32 for those sources and uint8 for others. Frames of float32 are decoded by cores.

    `size`, `interpolation`, `snap`, `snap_tolerance`, `fast`, `on_error` and `limits` are those of
    `flashcodec.VideoDecoder`, and so are the other arguments and what is raised.
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
        custom_frame_mappings: Mappings | None = None,
        output_dtype: OutputDtype = torch.uint8,
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
        if custom_frame_mappings is not None and seek_mode == "approximate":
            raise ValueError("custom_frame_mappings is incompatible with seek_mode='approximate'.")
        if transforms and size is not None:
            raise ValueError("give transforms or size, not both")
        mapped = None if custom_frame_mappings is None else read_mappings(custom_frame_mappings)
        self._shaping = Shaping([from_torchvision(each) for each in transforms or ()], output_dtype)
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
        if mapped is not None:
            check_mappings(mapped, self.bitstream.pts_seconds)

    _gpu: torch.device | None = None

    def _gpus(self, device: str) -> tuple[int, ...]:
        if device.partition(":")[0] == "cpu":
            return ()
        (number,) = gpu_numbers(device)
        self._gpu = torch.device("cuda", number)
        return (number,)

    @property
    def cpu_fallback(self) -> CpuFallbackStatus:
        """Tell whether cores decode although a GPU was asked for, and why."""
        if self._gpu is None:
            return CpuFallbackStatus(True, "CPU")
        reason = ""
        if self._shaping.deep:
            reason = "float32 is made by cores"
        elif not self._has_gpu_engine():
            reason = "Video not supported"
        return CpuFallbackStatus(True, "CUDA", reason)

    def _has_gpu_engine(self) -> bool:
        first = np.zeros(1, np.int64)
        scheduler = self._open_reader.engines.scheduler
        return bool(scheduler.estimate(self.bitstream.core, first, _core.DecodeOn.GPU))

    def __getstate__(self) -> tuple[Any, dict[str, Any]]:
        source, options = super().__getstate__()
        return source, options | {"shaping": self._shaping}

    def __setstate__(self, recipe: tuple[Any, dict[str, Any]]) -> None:
        source, options = recipe
        self._shaping = options["shaping"]
        super().__setstate__((source, {name: value for name, value in options.items() if name != "shaping"}))

    def _layout(self, stream: Bitstream, plain: RGBLayout) -> Layout:
        return self._shaping.settle(stream, plain)

    def _allocator(self) -> Allocator:
        if self._gpu is None or self._shaping.deep:
            return host_memory
        return partial(_gpu_memory, self._gpu)

    def _frames(self, indices: Indices | torch.Tensor) -> Numbers:
        return super()._frames(_whole(indices))

    def _finished(self, data: Any) -> torch.Tensor:
        frames = self._shaping.finish(data)
        return frames.to(self._gpu) if self._gpu is not None and self._shaping.deep else frames

    def _channels_first(self, data: Any) -> Any:
        return data.permute(0, 3, 1, 2)

    def _pixels(self, data: Any) -> torch.Tensor:
        pixels: torch.Tensor = data
        return pixels

    def _frame(self, frame: NumpyFrame) -> Frame:
        return Frame(self._pixels(frame.data), frame.pts_seconds, frame.duration_seconds)

    def _batch(self, batch: NumpyFrameBatch) -> FrameBatch:
        """Return tensors; times and numbers are in ordinary memory wherever the frames are."""
        indices = None if batch.indices is None else torch.from_numpy(batch.indices)
        times, durations = map(torch.from_numpy, (batch.pts_seconds, batch.duration_seconds))
        return FrameBatch(self._pixels(batch.data), times, durations, indices, batch.damaged)


def _gpu_memory(device: torch.device, shape: tuple[int, ...]) -> Memory:
    """Allocate the memory of a tensor, and wait for work that still uses it."""
    tensor = torch.empty(shape, dtype=torch.uint8, device=device)
    torch.cuda.current_stream(device).synchronize()
    return Memory(tensor, (tensor.data_ptr(), tensor.nbytes))


def _whole(indices: Indices | torch.Tensor) -> Indices:
    """Return tensors as arrays, of floats too if they are whole numbers. Raises ArgumentTypeError for other floats."""
    if isinstance(indices, torch.Tensor):
        if indices.is_floating_point():
            if not torch.equal(indices, indices.trunc()):
                raise ArgumentTypeError(f"frame indices must be whole numbers, got {indices}")
            indices = indices.to(torch.int64)
        array: Indices = indices.numpy(force=True)
        return array
    found = np.asarray(indices)
    if found.size and found.dtype.kind == "f":
        raise ArgumentTypeError("frame indices must be integers: expected scalar type Long but found Float")
    return indices


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    if tensor.dtype != torch.uint8 or tensor.ndim != 1:
        raise ArgumentError(f"a source tensor must be 1-d of uint8, got {tensor.ndim}-d of {tensor.dtype}")
    data: Any = tensor.contiguous().numpy()
    return memoryview(data)
