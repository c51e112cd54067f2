"""Analyse a video without decoding it."""

import dataclasses
import io
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, Protocol, SupportsIndex, runtime_checkable

import numpy as np
import numpy.typing as npt

from flashcodec import _core
from flashcodec.errors import ArgumentTypeError
from flashcodec.limits import Limits
from flashcodec.rank_parts import Adjustment, RankPart, divide_among_ranks
from flashcodec.sources import BYTES, PATHS, BytesSource, PathSource, bytes_of, name_of, open_path, printable
from flashcodec.timeline import nearest


@runtime_checkable
class FileLike(Protocol):
    """Read a binary file. Its calls come from other threads, one at a time."""

    def read(self, size: int, /) -> bytes: ...
    def seek(self, offset: int, whence: int, /) -> int: ...


Source = PathSource | BytesSource | FileLike


Indices = Sequence[int] | npt.NDArray[np.integer[Any]]

_LARGEST = np.iinfo(np.int64).max
_LARGEST_STREAM = 2**31 - 1  # that the core can be asked for


class Gop(NamedTuple):
    """Hold packets in decoding order from a key packet up to the next one.

    They are [first_packet, last_packet). Their frames are [first_frame, last_frame) in presentation order.
    """

    first_packet: int
    last_packet: int
    first_frame: int
    last_frame: int


class Doubt(NamedTuple):
    """Name a claim of the container that is not believed, because its packets contradict it.

    `claim` is "key flags" (where decoding may start), "times" (the order of the frames) or "frames" (which packets
    have one); `reason` says what the packets say instead.
    """

    claim: str
    reason: str


class Segment(NamedTuple):
    """Describe what one engine decodes at a stretch: places [first, last) of the frame list, from the packet `runs`.

    `cost` is an estimate, in microseconds of CPU time; `wide`: by all engines together (frame threads) if nothing else
    is to be done by then.
    """

    first: int
    last: int
    runs: tuple[tuple[int, int], ...]
    cost: int
    packets_needed: int
    packets_skipped: int
    wide: bool


@dataclass(frozen=True)
class Plan:
    """List the packets that are decoded for a list of frames.

    `packets_skipped` counts those inside of the runs that need no decoding (frames that no other frame refers to);
    packets outside of the runs are not even read. GOPs cut by two segments are decoded by both, and count twice.
    `doubts`: what of the container is not believed.
    """

    segments: tuple[Segment, ...]
    packets_total: int = 0
    gops_total: int = 0
    gops_touched: int = 0
    doubts: tuple[Doubt, ...] = ()

    @property
    def packets_needed(self) -> int:
        """Return how many packets are decoded: of the frames, and of those that they refer to."""
        return sum(segment.packets_needed for segment in self.segments)

    @property
    def packets_skipped(self) -> int:
        """Return how many packets are read on the way, but not decoded."""
        return sum(segment.packets_skipped for segment in self.segments)

    @property
    def packets_unread(self) -> int:
        """Return how many packets of the stream are not read at all."""
        return self.packets_total - self.packets_needed - self.packets_skipped

    @property
    def estimated_seconds(self) -> float:
        """Return CPU time, about."""
        return sum(segment.cost for segment in self.segments) / 1e6


@dataclass(repr=False)
class VideoStreamMetadata:
    """Describe a video stream. Names and meanings are TorchCodec's.

    Times are in seconds, sizes in pixels as displayed (after rotation); `_from_header` is what the container claims,
    `_from_content` what its packets say.
    """

    duration_seconds_from_header: float | None
    begin_stream_seconds_from_header: float | None
    bit_rate: float | None
    codec: str | None
    stream_index: int
    duration_seconds: float
    begin_stream_seconds: float
    begin_stream_seconds_from_content: float
    end_stream_seconds_from_content: float
    width: int
    height: int
    num_frames_from_header: int | None
    num_frames_from_content: int
    average_fps_from_header: float | None
    pixel_aspect_ratio: Fraction | None
    rotation: float | None
    color_primaries: str | None
    color_space: str | None
    color_transfer_characteristic: str | None
    pixel_format: str | None
    end_stream_seconds: float
    num_frames: int
    average_fps: float | None

    def __repr__(self) -> str:
        """Name each field on a line of its own; whole numbers without a point."""
        lines = [f"  {field.name}: {_plain(getattr(self, field.name))}\n" for field in dataclasses.fields(self)]
        return f"{type(self).__name__}:\n{''.join(lines)}"


class Bitstream:
    """Hold an analysed video stream. Any number of engines can decode it in any order.

    Raises DecodeError if the source holds no video that can be decoded, ValueError if `stream_index` is not the
    index of a video stream.
    """

    def __init__(self, source: Source, stream_index: int | None = None, limits: Limits | None = None) -> None:
        wanted = -1 if stream_index is None else min(to_index("stream_index", stream_index), _LARGEST_STREAM)
        if stream_index is not None and wanted < 0:
            raise ValueError(f"stream_index must not be negative, got {stream_index}")
        limits = Limits() if limits is None else limits
        self.core = _core.Bitstream(_open(source), wanted, limits.to_core())

    @property
    def num_frames(self) -> int:
        """Return how many frames the stream shows."""
        return self.core.num_frames

    @property
    def width(self) -> int:
        """Return the pixels of a row, as the stream's header has them."""
        return self.core.metadata.width

    @property
    def height(self) -> int:
        """Return the rows of a frame, as the stream's header has them."""
        return self.core.metadata.height

    @cached_property
    def pts_seconds(self) -> npt.NDArray[np.float64]:
        """Return float64 [num_frames], when each frame is shown, in presentation order."""
        return self.core.pts_seconds()

    @cached_property
    def durations_seconds(self) -> npt.NDArray[np.float64]:
        """Return float64 [num_frames], how long each frame is shown."""
        return self.core.durations_seconds()

    @property
    def end_seconds(self) -> float:
        """Return when the last frame ends."""
        return self.core.end_seconds()

    @cached_property
    def key_frames(self) -> npt.NDArray[np.int64]:
        """Return int64 [k], which frames are key frames."""
        return self.core.key_frames()

    @cached_property
    def gops(self) -> list[Gop]:
        """Return the groups of pictures, each decodable by itself, in the order of packets."""
        return [Gop(*gop) for gop in self.core.gops()]

    @cached_property
    def doubts(self) -> tuple[Doubt, ...]:
        """Return what of the container is not believed; empty for ordinary files."""
        return tuple(Doubt(*doubt) for doubt in self.core.doubts)

    @cached_property
    def metadata(self) -> VideoStreamMetadata:
        """Return what TorchCodec's decoder tells of a stream."""
        header = self.core.metadata
        begin, end = float(self.pts_seconds[0]), self.end_seconds
        ratio = header.pixel_aspect_ratio
        return VideoStreamMetadata(
            duration_seconds_from_header=header.duration_from_header,
            begin_stream_seconds_from_header=header.begin_from_header,
            bit_rate=header.bit_rate,
            codec=header.codec,
            stream_index=self.core.stream_index,
            duration_seconds=end - begin,
            begin_stream_seconds=begin,
            begin_stream_seconds_from_content=begin,
            end_stream_seconds_from_content=end,
            width=header.width,
            height=header.height,
            num_frames_from_header=header.num_frames_from_header,
            num_frames_from_content=self.num_frames,
            average_fps_from_header=header.average_fps_from_header,
            pixel_aspect_ratio=None if ratio is None else Fraction(*ratio),
            rotation=header.rotation,
            color_primaries=header.color_primaries,
            color_space=header.color_space,
            color_transfer_characteristic=header.color_transfer,
            pixel_format=header.pixel_format,
            end_stream_seconds=end,
            num_frames=self.num_frames,
            average_fps=self.num_frames / (end - begin) if end > begin else header.average_fps_from_header,
        )

    def plan(
        self, indices: Sequence[int] | npt.NDArray[np.int64], engines: int = 1, temporal_patch_size: int = 1
    ) -> Plan:
        """Plan which packets `engines` engines decode for these frames. Reads the packets concerned.

        Raises IndexError for a frame that is not there.
        """
        frames = self.checked(indices)
        if frames.size == 0:
            return Plan((), self.core.num_packets, len(self.gops), doubts=self.doubts)
        segments = tuple(Segment(*s) for s in self.core.plan(frames, temporal_patch_size, engines))
        runs = np.array([run for segment in segments for run in segment.runs])
        starts = [gop.first_packet for gop in self.gops]
        first = np.searchsorted(starts, runs[:, 0], side="right") - 1
        last = np.searchsorted(starts, runs[:, 1], side="left")
        touched = {gop for begin, end in zip(first, last, strict=True) for gop in range(begin, end)}
        return Plan(segments, self.core.num_packets, len(self.gops), len(touched), self.doubts)

    def rank_parts(
        self, indices: Indices, ranks: int, temporal_patch_size: int = 1, adjust: Adjustment = "increase"
    ) -> tuple[RankPart, ...]:
        """Divide frames among ranks that each decode some of the GOPs: see `divide_among_ranks`.

        Each rank requests the frames of its part; their groups in a row are those of one request for all.
        Raises IndexError for a frame that is not there, ValueError for numbers that are not positive.
        """
        starts = np.union1d([0], self.key_frames)
        return divide_among_ranks(self.checked(indices), starts, ranks, temporal_patch_size, adjust)

    def snap(self, indices: Indices, tolerance_seconds: float | None = None) -> npt.NDArray[np.int64]:
        """Return int64 [n], the key frame nearest in time to each frame.

        A frame stays itself if its key frame is further away than `tolerance_seconds`. Decoding key frames costs a
        fraction of decoding any others.

        Raises IndexError for a frame that is not there.
        """
        frames, keys = self.checked(indices), self.key_frames
        if keys.size == 0:
            return frames
        times, key_times = self.pts_seconds[frames], self.pts_seconds[keys]
        snapped = nearest(key_times, times)
        near_enough = np.abs(key_times[snapped] - times) <= (np.inf if tolerance_seconds is None else tolerance_seconds)
        return np.where(near_enough, keys[snapped], frames)

    def checked(self, indices: Indices) -> npt.NDArray[np.int64]:
        """Return the indices as int64 [n]. Raises IndexError for a frame that is not there."""
        frames = to_indices(indices)
        if frames.size and (frames.min() < 0 or frames.max() >= self.num_frames):
            raise IndexError(f"frame indices must be in [0, {self.num_frames})")
        return frames

    def __repr__(self) -> str:
        meta = self.metadata
        return f"Bitstream({self.core.source_name!r}, {meta.codec} {meta.width}x{meta.height}, {len(self.gops)} GOPs)"


def analyse_bitstream(source: Source, stream_index: int | None = None, limits: Limits | None = None) -> Bitstream:
    """Analyse a video without decoding it.

    Args:
        source: path of a file, bytes-like object or 1-d uint8 array (kept, not copied), or file-like object with
            read and seek. bytes are always what a file holds; the bytes of a path need `os.fsdecode`.
        stream_index: which stream of the container; by default the best video stream.
        limits: by default `Limits()`.

    Raises DecodeError if there is no video that can be decoded, ValueError if the stream is no video stream.
    """
    return Bitstream(source, stream_index, limits)


def to_indices(indices: Indices) -> npt.NDArray[np.int64]:
    """Return frame indices as an int64 vector. Raises ArgumentTypeError if they are no integers."""
    array = np.asarray(indices)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        raise ArgumentTypeError(f"frame indices must be integers, got {array.dtype}")
    if array.dtype.kind == "u":
        array = np.minimum(array, _LARGEST)  # no frame either; as int64 a larger one would be negative
    return np.ascontiguousarray(array, np.int64)


def to_index(name: str, value: SupportsIndex) -> int:
    """Return a whole number. Raises ArgumentTypeError for what is none."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise ArgumentTypeError(f"{name} must be an integer, not {value!r}") from error


def _open(source: Any) -> _core.Source:
    if isinstance(source, PATHS):
        return _core.Source.descriptor(open_path(source), name_of(source))
    if isinstance(source, BYTES):
        return _core.Source.buffer(bytes_of(source), name_of(source))
    if isinstance(source, io.TextIOBase):
        raise TypeError("the file is opened for reading text; did you want binary reading? Open it with mode 'rb'")
    if hasattr(source, "read") and hasattr(source, "seek"):
        return _core.Source.file_like(source, printable(str(getattr(source, "name", "<file object>"))))
    raise TypeError(
        f"Unknown source type: {type(source)}. A video source is a path, bytes-like, or file-like with read and seek"
    )


def _plain(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value
