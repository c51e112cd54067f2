"""Share what decoders have in common, whatever kind of arrays they return."""

import mmap
import numbers
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Generic, Literal, Self, SupportsFloat, TypeVar, overload

import numpy as np

from flashcodec.bitstream import Bitstream, Indices, Plan, Source, VideoStreamMetadata, to_index, to_indices
from flashcodec.frames import ArrayT, Frame, FrameBatch, FrameBatchOf, FrameOf
from flashcodec.geometry import shortest_edge_size
from flashcodec.layouts import Interpolation, Layout, RGBLayout
from flashcodec.limits import Limits
from flashcodec.reading import Allocator, Engines, FrameReader, OnError, Pixels, Progress
from flashcodec.sources import BYTES, PATHS
from flashcodec.timeline import Numbers, Seconds, Timeline

FrameT = TypeVar("FrameT", bound=FrameOf[Any])
BatchT = TypeVar("BatchT", bound=FrameBatchOf[Any])

Order = Literal["NCHW", "NHWC"]
SeekMode = Literal["exact", "approximate"]
Size = int | tuple[int, int]


class Decoder(ABC, Generic[ArrayT, FrameT, BatchT]):
    """Define the methods that decoders share, whatever kind of arrays they return."""

    def __init__(
        self,
        source: Source | Bitstream,
        *,
        stream_index: int | None = None,
        dimension_order: Order = "NCHW",
        num_threads: int = 0,
        device: str = "cpu",
        seek_mode: SeekMode = "exact",
        size: Size | None = None,
        interpolation: Interpolation = "bicubic",
        snap: Literal["keyframe"] | None = None,
        snap_tolerance: float | None = None,
        fast: bool = False,
        on_error: OnError = "raise",
        limits: Limits | None = None,
    ) -> None:
        self._recipe = source, {name: value for name, value in locals().items() if name not in ("self", "source")}
        _check_choice("dimension order", dimension_order, "NCHW", "NHWC")
        _check_choice("seek mode", seek_mode, "exact", "approximate")
        _check_choice("snap", snap, None, "keyframe")
        _check_choice("on_error", on_error, "raise", "skip", "nearest")
        engines = Engines(num_threads, self._gpus(device))
        engines.check()
        stream = source if isinstance(source, Bitstream) else Bitstream(source, stream_index, limits)
        plain = RGBLayout(*_target_size(size, stream.height, stream.width), "NHWC", interpolation)
        layout = self._layout(stream, plain)
        self._order = dimension_order
        self._snap = snap
        self._snap_tolerance = snap_tolerance
        self._reader: FrameReader | None = FrameReader(stream, layout, engines, self._allocator(), fast, on_error)
        self.metadata: VideoStreamMetadata = stream.metadata
        self._timeline = Timeline(stream.pts_seconds, stream.end_seconds)
        self.stream_index = self.metadata.stream_index

    @abstractmethod
    def _gpus(self, device: str) -> tuple[int, ...]:
        """Return the number of the GPU that frames are to be on; none: in ordinary memory. Raises ValueError."""

    def _layout(self, stream: Bitstream, plain: RGBLayout) -> Layout:
        """Return what frames are decoded to, by default `plain`; channels last."""
        return plain

    @abstractmethod
    def _allocator(self) -> Allocator:
        """Return what allocates the memory of frames, without a reference to this decoder."""

    def _finished(self, data: Any) -> Any:
        """Return what becomes of decoded frames; channels last."""
        return data

    @abstractmethod
    def _pixels(self, data: Pixels) -> ArrayT: ...
    @abstractmethod
    def _frame(self, frame: Frame) -> FrameT: ...
    @abstractmethod
    def _channels_first(self, data: Pixels) -> Pixels: ...
    @abstractmethod
    def _batch(self, batch: FrameBatch) -> BatchT: ...

    @property
    def bitstream(self) -> Bitstream:
        """Return the analysed stream: packets, GOPs, plans."""
        return self._open_reader.stream

    @property
    def on_error(self) -> OnError:
        """Return what becomes of frames that cannot be decoded."""
        return self._open_reader.on_error

    def close(self) -> None:
        """Let go of the source and of threads of its own.

        Frames that were returned stay valid; the methods that decode raise ValueError from now on. Streams and calls of
        other threads that have begun go on to their end. A `with` block closes its decoder, too.
        """
        if self._reader is not None:
            self._reader.engines.close()
        self._reader = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> tuple[Any, dict[str, Any]]:
        source, options = self._recipe
        if isinstance(source, memoryview | mmap.mmap):
            return bytes(source), options
        if isinstance(source, PATHS + BYTES):
            return source, options
        raise TypeError(
            f"a {type(self).__name__} on a {type(source).__name__} cannot be pickled; give it a path or bytes, "
            "which another process can open by itself"
        )

    def __setstate__(self, recipe: tuple[Any, dict[str, Any]]) -> None:
        source, options = recipe
        Decoder.__init__(self, source, **options)

    def __len__(self) -> int:
        return self.metadata.num_frames

    @overload
    def __getitem__(self, key: int) -> ArrayT: ...
    @overload
    def __getitem__(self, key: slice) -> ArrayT: ...
    def __getitem__(self, key: int | slice) -> ArrayT:
        """Return a frame's pixels, or those of a slice of frames."""
        if isinstance(key, numbers.Integral):
            return self._pixels(self._read([int(key)]).data[0])
        if isinstance(key, slice):
            return self._pixels(self._read(range(*key.indices(len(self)))).data)
        raise TypeError(f"Unsupported key type: {type(key)}. Supported types are int and slice.")

    def get_frame_at(self, index: int) -> FrameT:
        """Return the frame number `index` in presentation order; negative numbers count from the end.

        Raises IndexError for a frame that is not there, ArgumentTypeError if the index is no integer.
        """
        return self._first(self._read([to_index("index", index)]))

    def get_frames_at(self, indices: Indices, *, progress: Progress | None = None) -> BatchT:
        """Return the frames of these numbers, in this order; repeats are allowed, negative numbers count from the end.

        Raises IndexError for a frame that is not there, ArgumentTypeError if the numbers are no integers.
        """
        return self._batch(self._read(indices, progress))

    def get_frames_in_range(self, start: int, stop: int, step: int = 1, *, progress: Progress | None = None) -> BatchT:
        """Return the frames [start, stop) with this step; as in a slice, the range is clipped to the video."""
        return self._batch(self._read(range(*slice(start, stop, step).indices(len(self))), progress))

    def get_frame_played_at(self, seconds: float) -> FrameT:
        """Return the frame shown at this time. Raises OutOfRangeError before the first and after the last."""
        if not isinstance(seconds, SupportsFloat):
            raise TypeError(f"seconds must be a number, not {type(seconds).__name__}")
        return self._first(self._read(self._timeline.at([float(seconds)])))

    def get_frames_played_at(self, seconds: Seconds, *, progress: Progress | None = None) -> BatchT:
        """Return the frames shown at these times. Raises OutOfRangeError before the first and after the last."""
        return self._batch(self._read(self._timeline.at(seconds), progress))

    def get_frames_played_in_range(
        self, start_seconds: float, stop_seconds: float, fps: float | None = None, *, progress: Progress | None = None
    ) -> BatchT:
        """Return the frames shown in [start_seconds, stop_seconds). The first is the one on show at the start.

        With `fps`, frames are repeated or dropped to have one for each 1 / fps seconds, which is then its time.
        Raises ValueError if the range is empty the wrong way round, or not within the video, and ArgumentError for a
        rate that is not positive.
        """
        timeline = self._timeline
        if fps is None or start_seconds == stop_seconds:
            return self._batch(self._read(timeline.between(start_seconds, stop_seconds), progress))
        times, frames = timeline.at_rate(start_seconds, stop_seconds, fps)
        batch = self._read(frames, progress)
        if len(batch) < len(times):
            times = times[~np.isin(self._frames(frames), list(batch.damaged))]
        durations = np.full(len(times), 1 / fps)
        return self._batch(FrameBatch(batch.data, times, durations, batch.indices, batch.damaged))

    def get_all_frames(self, fps: float | None = None, *, progress: Progress | None = None) -> BatchT:
        """Return every frame of the video, or one for each 1 / fps seconds."""
        if fps is None:
            return self._batch(self._read(range(len(self)), progress))
        return self.get_frames_played_in_range(self._timeline.begin, self._timeline.end, fps, progress=progress)

    def stream(self, indices: Indices) -> Iterator[BatchT]:
        """Yield the frames of `get_frames_at` in batches of one or more.

        Each comes once it and all before it are there. Only a window of the video is in memory, about 256 MB or two
        GOPs if these are larger, and it lives as long as any batch of it. Frames in ascending order are best: they can
        be cut into windows. With on_error="nearest" a frame is replaced by one of the same window; a window without any
        raises its error.
        """
        frames = self._frames(indices)
        return (self._batch(self._ordered(chunk)) for chunk in self._open_reader.chunks(frames))

    def plan(self, indices: Indices) -> Plan:
        """Plan what would be decoded for these frames; reads the packets concerned."""
        frames = self._frames(indices)
        return self.bitstream.plan(frames, engines=self._open_reader.engines.scheduler.engines)

    def get_yuv_frames_at(self, indices: Indices) -> list[Pixels]:
        """Return the decoder's own planes of these frames, one after the other, uint8 [bytes].

        There is no padding. They have the native pixel format, cropped, not rotated, as `ffmpeg -f rawvideo` writes.
        Damage is always an error.
        """
        return self._open_reader.raw(self._frames(indices))

    @property
    def _open_reader(self) -> FrameReader:
        if self._reader is None:
            raise ValueError("this decoder is closed")
        return self._reader

    def _read(self, indices: Indices, progress: Progress | None = None) -> FrameBatch:
        return self._ordered(self._open_reader.read(self._frames(indices), progress))

    def _first(self, batch: FrameBatch) -> FrameT:
        return self._frame(Frame(batch.data[0], batch.pts_seconds[0], batch.duration_seconds[0]))

    def _ordered(self, batch: FrameBatch) -> FrameBatch:
        """Return the order asked for.

        Decoders write pixels one after the other, so the order NCHW is a view, as TorchCodec's is.
        """
        batch.data = self._finished(batch.data)
        if self._order == "NCHW":
            batch.data = self._channels_first(batch.data)
        return batch

    def _frames(self, indices: Indices) -> Numbers:
        frames = np.atleast_1d(to_indices(indices))
        if frames.ndim != 1:
            raise ValueError(f"frame indices must be a list of numbers, got an array of shape {frames.shape}")
        wrapped = np.where(frames < 0, frames + len(self), frames)
        bad = (wrapped < 0) | (wrapped >= len(self))
        if bad.any():
            raise IndexError(_out_of_range(int(frames[bad][0]), len(self)))
        if self._snap is None:
            return wrapped
        return self.bitstream.snap(wrapped, self._snap_tolerance)


def _check_choice(name: str, value: object, *choices: object) -> None:
    if value not in choices:
        raise ValueError(f"Invalid {name} ({value}). Supported values are {', '.join(map(str, choices))}.")


def _out_of_range(index: int, count: int) -> str:
    if index < 0:
        limit = "negative indices must have an absolute value less than the number of frames, and that is"
    else:
        limit = "must be less than"
    return f"Invalid frame index={index}; {limit} {count}"


def _target_size(size: Size | None, height: int, width: int) -> tuple[int, int]:
    if size is None:
        return height, width
    if isinstance(size, int | np.integer):
        size = shortest_edge_size(height, width, int(size))
    target = tuple(map(operator.index, size))
    if len(target) != 2 or min(target) < 1:
        raise ValueError(f"size must be (height, width) or the shorter side, positive, got {size}")
    return target
