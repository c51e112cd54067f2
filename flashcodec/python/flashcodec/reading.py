"""Read lists of frames of one stream into arrays: at once, or chunk by chunk as they come."""

import math
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from flashcodec import _core
from flashcodec.bitstream import Bitstream
from flashcodec.errors import DamagedError, DecodeError
from flashcodec.frames import FrameBatch
from flashcodec.layouts import DeepLayout, Layout
from flashcodec.serving import OUTPUT_LIMIT, checked_threads, scheduler_of
from flashcodec.timeline import nearest

Pixels = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]
OnError = Literal["raise", "skip", "nearest"]

WINDOW_BYTES = 128 << 20
"""A stream of frames is decoded in windows of about this size, two of which are in memory at a time."""

_LARGE = 4 << 20  # bytes; NumPy asks for huge pages from here on


class Memory(NamedTuple):
    """Hold what frames are decoded to: a uint8 array, or a tensor on a GPU.

    The core is told of it by the address and bytes of the latter.
    """

    array: Any
    out: Pixels | tuple[int, int]


Allocator = Callable[[tuple[int, ...]], Memory]


class Engines:
    """Hold the process-wide pool of decoding threads, or one's own. A forked child starts it again."""

    def __init__(self, num_threads: int, gpus: tuple[int, ...] = ()) -> None:
        self._num_threads = checked_threads(num_threads)
        self._gpus = gpus
        self._own: tuple[int, _core.Scheduler] | None = None

    @property
    def scheduler(self) -> _core.Scheduler:
        if self._num_threads == 0:
            return scheduler_of(0, None, self._gpus)
        own = self._own
        if own is None or own[0] != os.getpid():
            own = self._own = os.getpid(), scheduler_of(self._num_threads, None, self._gpus)
        return own[1]

    def session(self) -> _core.Session:
        return _core.Session(self.scheduler, OUTPUT_LIMIT)

    def check(self) -> None:
        """Raise RuntimeError if their GPU is not there or cannot be used."""
        if self._gpus:
            self.session()

    def host_session(self) -> _core.Session:
        """Return one whose outputs are in ordinary memory."""
        return _core.Session(scheduler_of(0) if self._gpus else self.scheduler, OUTPUT_LIMIT)

    def close(self) -> None:
        """Let go of the threads. They end once nothing is read any more: a reader would wait for ever without them."""
        self._own = None


@dataclass(frozen=True)
class FrameReader:
    """Read frames of a stream by their numbers, which must be there.

    Attributes:
        layout: with a size, and of the order NHWC, or deep: then frames are decoded on cores.
        memory: makes what frames of a shape are decoded to.
        fast, on_error: see VideoDecoder.
    """

    stream: Bitstream
    layout: Layout
    engines: Engines
    memory: Allocator
    fast: bool = False
    on_error: OnError = "raise"

    def read(self, frames: Numbers, progress: Progress | None = None) -> FrameBatch:
        """Return the frames in the order given, repeats allowed: data [n, height, width, 3]."""
        window = _Window(self, frames)
        for _ in window.arrivals():
            if progress is not None:
                progress(window.num_arrived, len(frames))
        if window.all_lost:
            raise window.take_first_error()
        return window.batch(0, len(frames))

    def chunks(self, frames: Numbers) -> Iterator[FrameBatch]:
        """Yield the same in chunks of one or more frames. Each comes as soon as it and all before it are there."""
        lost: list[DecodeError] = []
        anything = False
        windows = (_Window(self, frames[first:last]) for first, last in self._cuts(frames))
        window = next(windows, None)
        while window is not None:
            ahead = None
            for chunk in window.chunks():
                anything = True
                yield chunk
                ahead = ahead or next(windows, None)  # not earlier: the caller had a chunk of the window before
            if window.all_lost and not lost:
                lost.append(window.take_first_error())
            if lost and self.on_error == "nearest":
                raise lost.pop()
            window = ahead or next(windows, None)
        if lost and not anything:
            raise lost.pop()

    def session(self) -> _core.Session:
        return self.engines.host_session() if isinstance(self.layout, DeepLayout) else self.engines.session()

    def raw(self, frames: Numbers) -> list[Pixels]:
        """Return the decoder's own planes of each frame, uint8 [bytes]."""
        planes: dict[int, Pixels] = {}
        session = self.engines.host_session()
        if len(frames):
            session.add(self.stream.core, frames, _core.Layout(_core.LayoutKind.RAW, 0, 0), fast=self.fast)
        while len(planes) < len(frames):
            output = session.take(None)
            assert output is not None
            if output.error is not None:
                raise output.error
            planes[output.first] = output.take_data()
        return [planes[place] for place in range(len(frames))]

    def _cuts(self, frames: Numbers) -> Iterator[tuple[int, int]]:
        """Return places [first, last) of windows.

        Where a key frame parts all places before from all after, hardly any packet is decoded for both.
        """
        gops = np.searchsorted(self.stream.key_frames, frames, side="right")
        highest_before = np.maximum.accumulate(gops)[:-1]
        lowest_after = np.minimum.accumulate(gops[::-1])[::-1][1:]
        frame_bytes = int(np.prod(self.layout.group_shape(1)))
        first = 0
        for cut in np.flatnonzero(highest_before < lowest_after) + 1:
            if (cut - first) * frame_bytes >= WINDOW_BYTES:
                yield first, int(cut)
                first = int(cut)
        if first < len(frames):
            yield first, len(frames)


class _Window:
    """Follow frames being decoded into one array, and each place's fate so far."""

    def __init__(self, reader: FrameReader, frames: Numbers) -> None:
        self._stream = reader.stream
        self._frames = frames
        self._on_error = reader.on_error
        memory = reader.memory(reader.layout.group_shape(len(frames)))
        self._out = memory.array
        self._arrived = np.zeros(len(frames), bool)
        self.num_arrived = 0
        self.errors: dict[int, DecodeError] = {}
        self._session = reader.session()
        if len(frames):
            report = reader.on_error != "raise"
            core = reader.stream.core
            self._session.add(core, frames, reader.layout.to_core(), memory.out, fast=reader.fast, report=report)

    def __del__(self) -> None:
        """End decoding before the memory that it writes to goes."""
        session: _core.Session | None = getattr(self, "_session", None)
        if session is not None:
            session.cancel_all()

    @property
    def all_lost(self) -> bool:
        return self._on_error != "raise" and 0 < len(self.errors) == len(self._frames)

    def take_first_error(self) -> DecodeError:
        """Return the first error to be raised, whose traceback refers to this: it is no longer kept here."""
        return self.errors.pop(min(self.errors))

    def arrivals(self) -> Iterator[None]:
        """Wait for places to be filled, or found damaged, again and again until all are."""
        try:
            while self.num_arrived < len(self._frames):
                self._note(self._session.take(None))
                while self._note(self._session.take(0)):
                    pass
                yield
        finally:
            self._session.cancel_all()

    def chunks(self) -> Iterator[FrameBatch]:
        """Yield batches of the places from the first to the last, as they arrive."""
        first = last = 0
        for _ in self.arrivals():
            while last < len(self._frames) and self._arrived[last]:
                last += 1
            if first < last and (self._on_error != "nearest" or self._intact(last).size):
                chunk = self.batch(first, last)
                first = last
                if len(chunk):
                    yield chunk

    def batch(self, first: int, last: int) -> FrameBatch:
        """Return places [first, last), all of which have arrived.

        Those with errors are left out or replaced, in place.
        """
        chosen = self._chosen(first, last)
        for to in np.flatnonzero(chosen != np.arange(first, first + len(chosen))):
            self._out[first + to] = self._out[chosen[to]]
        frames = self._frames[chosen]
        concerned = sorted(place for place in self.errors if first <= place < last)
        damaged = {int(self._frames[place]): self.errors[place] for place in concerned}
        return FrameBatch(
            self._out[first : first + len(chosen)],
            self._stream.pts_seconds[frames],
            self._stream.durations_seconds[frames],
            frames,
            damaged,
        )

    def _chosen(self, first: int, last: int) -> Numbers:
        """Return which places take the places from `first` on."""
        places = np.arange(first, last)
        if self._on_error == "raise" or not self.errors:
            return places
        intact = self._intact(last)
        if self._on_error == "skip":
            return intact[intact >= first]
        return np.where(np.isin(places, intact), places, self._nearest(places, intact))

    def _nearest(self, places: Numbers, intact: Numbers) -> Numbers:
        """Return the intact places whose frames are nearest in time to those of `places`."""
        times = self._stream.pts_seconds[self._frames]
        candidates = intact[np.argsort(times[intact], kind="stable")]
        return candidates[nearest(times[candidates], times[places])]

    def _intact(self, last: int) -> Numbers:
        return np.setdiff1d(np.arange(last), list(self.errors))

    def _note(self, output: _core.Output | None) -> bool:
        if output is None:
            return False
        if output.error is not None:
            if output.count == 0 or self._on_error == "raise":
                raise output.error
            self.errors[output.first] = output.error
        elif output.damaged:
            self.errors[output.first] = self._concealed(int(self._frames[output.first]))
        self._arrived[output.first] = True
        self.num_arrived += 1
        return True

    def _concealed(self, frame: int) -> DamagedError:
        core = self._stream.core
        return DamagedError(core.source_name, core.stream_index, f"errors in frame {frame} were concealed", frame)


def host_memory(shape: tuple[int, ...]) -> Memory:
    """Allocate as np.empty does, without asking for huge pages.

    On machines whose memory is fragmented the kernel takes longer to find them than decoding takes.
    """
    size = math.prod(shape)
    if size < _LARGE:
        array = np.empty(shape, np.uint8)
    else:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        array = np.frombuffer(pages, np.uint8).reshape(shape)
    return Memory(array, array)
