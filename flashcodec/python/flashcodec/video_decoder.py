"""Random access to the frames of a video, with TorchCodec's methods and semantics."""

import dataclasses
import math
import numbers
from collections.abc import Iterator, Sequence
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from flashcodec import _core
from flashcodec.bitstream import Bitstream, Indices, Source, VideoStreamMetadata, to_indices
from flashcodec.layouts import RGBLayout
from flashcodec.serving import OUTPUT_LIMIT, scheduler_of

Pixels = npt.NDArray[np.uint8]
Seconds = npt.NDArray[np.float64]


@dataclasses.dataclass
class Frame:
    """A frame: `data` is uint8 [3, height, width] or [height, width, 3]; times are in seconds."""

    data: Pixels
    pts_seconds: float
    duration_seconds: float

    def __iter__(self) -> Iterator[Pixels | float]:
        return iter((self.data, self.pts_seconds, self.duration_seconds))

    def __repr__(self) -> str:
        times = f"pts_seconds={self.pts_seconds}, duration_seconds={self.duration_seconds}"
        return f"Frame(shape={self.data.shape}, {times})"


@dataclasses.dataclass
class FrameBatch:
    """Frames: `data` is uint8 [n, 3, height, width] or [n, height, width, 3]; `pts_seconds` and
    `duration_seconds` are float64 [n]."""

    data: Pixels
    pts_seconds: Seconds
    duration_seconds: Seconds

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, key: Any) -> "FrameBatch":
        return FrameBatch(self.data[key], self.pts_seconds[key], self.duration_seconds[key])

    def __iter__(self) -> Iterator["FrameBatch"]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"FrameBatch(shape={self.data.shape}, pts_seconds={self.pts_seconds})"


class VideoDecoder:
    """Frames of one video stream by index or time, as RGB arrays.

    Args:
        source: path, bytes-like object (kept, not copied), or file-like object with read and seek.
        stream_index: which stream of the container; by default the best video stream.
        dimension_order: "NCHW" or "NHWC".
        num_threads: decoding threads of its own; 0 shares the process-wide pool, one thread a core.

    Raises DecodeError if the source holds no video that can be decoded, ValueError for arguments out of range.
    Methods raise DecodeError for frames that are damaged, IndexError for frames that are not there.
    """

    def __init__(
        self,
        source: Source | Bitstream,
        *,
        stream_index: int | None = None,
        dimension_order: Literal["NCHW", "NHWC"] = "NCHW",
        num_threads: int = 0,
    ) -> None:
        if num_threads < 0:
            raise ValueError(f"num_threads must not be negative, got {num_threads}")
        self._layout = RGBLayout(order=dimension_order)
        self._stream = source if isinstance(source, Bitstream) else Bitstream(source, stream_index)
        self._layout = self._layout.sized(self._stream.height, self._stream.width)
        self._own_scheduler = scheduler_of(num_threads) if num_threads else None
        self.metadata: VideoStreamMetadata = self._stream.metadata
        self.stream_index = self.metadata.stream_index

    @property
    def bitstream(self) -> Bitstream:
        """The analysed stream: packets, GOPs, plans."""
        return self._stream

    def __len__(self) -> int:
        return self._stream.num_frames

    @overload
    def __getitem__(self, key: slice) -> Pixels: ...
    @overload
    def __getitem__(self, key: int) -> Pixels: ...
    def __getitem__(self, key: int | slice) -> Pixels:
        """A frame's pixels, or those of a slice of frames."""
        if isinstance(key, numbers.Integral):
            return self.get_frame_at(int(key)).data
        if isinstance(key, slice):
            return self._frames(range(*key.indices(len(self)))).data
        raise TypeError(f"Unsupported key type: {type(key)}. Supported types are int and slice.")

    def get_frame_at(self, index: int) -> Frame:
        """The frame number `index` in presentation order; negative numbers count from the end."""
        batch = self._frames([index])
        return Frame(batch.data[0], float(batch.pts_seconds[0]), float(batch.duration_seconds[0]))

    def get_frames_at(self, indices: Indices) -> FrameBatch:
        """The frames of these numbers, in this order; repeats are allowed, negative numbers count from the end."""
        return self._frames(indices)

    def get_frames_in_range(self, start: int, stop: int, step: int = 1) -> FrameBatch:
        """The frames [start, stop) with this step; as in a slice, the range is clipped to the video."""
        return self._frames(range(*slice(start, stop, step).indices(len(self))))

    def get_frame_played_at(self, seconds: float) -> Frame:
        """The frame that is shown at this time. Raises IndexError before the first and after the last."""
        return self.get_frame_at(int(self._played_at([seconds])[0]))

    def get_frames_played_at(self, seconds: Sequence[float]) -> FrameBatch:
        """The frames that are shown at these times. Raises IndexError before the first and after the last."""
        return self._frames(self._played_at(seconds))

    def get_frames_played_in_range(
        self, start_seconds: float, stop_seconds: float, fps: float | None = None
    ) -> FrameBatch:
        """The frames shown in [start_seconds, stop_seconds), beginning with the one on show at the start.

        With `fps`, frames are repeated or dropped to have one for each 1 / fps seconds, which is then its time.
        Raises ValueError if the range is empty the wrong way round, or not within the video.
        """
        begin, end = self.metadata.begin_stream_seconds, self.metadata.end_stream_seconds
        if not start_seconds <= stop_seconds:
            raise ValueError(f"Invalid start seconds: {start_seconds} is after the stop seconds, {stop_seconds}.")
        if not begin <= start_seconds < end:
            raise ValueError(f"Invalid start seconds: {start_seconds}. It must be in [{begin}, {end}).")
        if not stop_seconds <= end:
            raise ValueError(f"Invalid stop seconds: {stop_seconds}. It must be at most {end}.")
        if start_seconds == stop_seconds:
            return self._frames([])
        if fps is not None:
            if not fps > 0:
                raise ValueError(f"fps must be positive, got {fps}")
            times = start_seconds + np.arange(math.floor((stop_seconds - start_seconds) * fps + 0.5)) / fps
            shown = self._frames(self._shown_at(times))
            return FrameBatch(shown.data, times, np.full(len(times), 1 / fps))
        first = self._shown_at(np.array([start_seconds]))[0]
        last = np.searchsorted(self._stream.pts_seconds, stop_seconds, side="left")
        return self._frames(np.arange(first, max(first + 1, last)))

    def get_all_frames(self, fps: float | None = None) -> FrameBatch:
        """Every frame of the video, or one for each 1 / fps seconds."""
        return self.get_frames_played_in_range(
            self.metadata.begin_stream_seconds, self.metadata.end_stream_seconds, fps
        )

    def get_yuv_frames_at(self, indices: Indices) -> list[Pixels]:
        """The decoder's own planes of these frames, one after the other without padding, uint8 [bytes]: native
        pixel format, cropped, not rotated; what `ffmpeg -f rawvideo` writes."""
        frames = self._checked(indices)
        if frames.size == 0:
            return []
        session = self._session()
        session.add(self._stream.core, frames, _core.Layout(_core.LayoutKind.RAW, 0, 0))
        planes: dict[int, Pixels] = {}
        while len(planes) < len(frames):
            output = _take(session)
            planes[output.first] = output.take_data()
        return [planes[i] for i in range(len(frames))]

    def _frames(self, indices: Indices) -> FrameBatch:
        frames = self._checked(indices)
        data = np.empty(self._layout.group_shape(len(frames)), np.uint8)
        self._decode(frames, data)
        return FrameBatch(data, self._stream.pts_seconds[frames], self._stream.durations_seconds[frames])

    def _decode(self, frames: npt.NDArray[np.int64], out: Pixels) -> None:
        if len(frames) == 0:
            return
        session = self._session()
        session.add(self._stream.core, frames, self._layout.to_core(), out)
        while not _take(session).done:
            pass

    def _session(self) -> _core.Session:
        return _core.Session(self._own_scheduler or scheduler_of(0), OUTPUT_LIMIT)

    def _checked(self, indices: Indices) -> npt.NDArray[np.int64]:
        frames = to_indices(indices)
        wrapped = np.where(frames < 0, frames + len(self), frames)
        bad = (wrapped < 0) | (wrapped >= len(self))
        if bad.any():
            raise IndexError(f"Invalid frame index={frames[bad][0]}; must be in [{-len(self)}, {len(self)}).")
        return wrapped

    def _played_at(self, seconds: Sequence[float]) -> npt.NDArray[np.int64]:
        times = np.asarray(seconds, np.float64)
        begin, end = self.metadata.begin_stream_seconds, self.metadata.end_stream_seconds
        bad = ~((times >= begin) & (times < end))
        if bad.any():
            raise IndexError(f"Invalid pts in seconds: {times[bad][0]}. It must be in [{begin}, {end}).")
        return self._shown_at(times)

    def _shown_at(self, times: Seconds) -> npt.NDArray[np.int64]:
        return np.searchsorted(self._stream.pts_seconds, times, side="right").astype(np.int64) - 1


def _take(session: _core.Session) -> _core.Output:
    output = session.take(None)
    assert output is not None
    if output.error is not None:
        raise output.error
    return output


def yuv_frames_at(source: Source | Bitstream, indices: Indices) -> list[Pixels]:
    """`VideoDecoder.get_yuv_frames_at` of the best stream of a source."""
    return VideoDecoder(source).get_yuv_frames_at(indices)
