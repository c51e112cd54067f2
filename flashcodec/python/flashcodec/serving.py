"""Decode asynchronously for servers: requests in, temporal groups of frames out as soon as they are decoded."""

import atexit
import os
import re
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt

from flashcodec import _core
from flashcodec.bitstream import Bitstream, Indices, Source, analyse_bitstream, to_index, to_indices
from flashcodec.errors import ArgumentError, DecodeError
from flashcodec.layouts import Layout, RGBLayout
from flashcodec.limits import Limits

OUTPUT_LIMIT = 256 << 20
_MOST_THREADS = 1024

_DECODE_ON = {"fastest": _core.DecodeOn.FASTEST, "cpu": _core.DecodeOn.CORES, "gpu": _core.DecodeOn.GPU}


@dataclass(frozen=True)
class DecodingOutput:
    """Hold frames [first, first + count) of a request's frame list, its group `first_group`.

    There are no frames if the whole request has failed. Outputs of a request may come out of order.

    Attributes:
        data: uint8 of the layout's `group_shape(1)` (the last group of the list is filled up by repeating its last
            frame); None with an error, and on a GPU.
        gpu_data: the same on a GPU, for `from_dlpack` of an array library; all of it is written. A reader on another
            stream than the default one must have ended before it is let go of.
        done: nothing more comes of this request.
        engine: which engine decoded it, from 0.
        decoded_on: the kind of that engine: a core ("cpu"), or units of a GPU ("gpu").
        began, ended: when it worked on it, in seconds of time.monotonic().
        damaged: FFmpeg concealed errors in these frames or in what they may refer to.
        error: why these frames are not there (`data` is then None). It is the request's end unless the request has
            on_error="skip".
    """

    request: int
    first: int
    count: int
    first_group: int
    data: npt.NDArray[np.uint8] | None
    done: bool
    engine: int = 0
    began: float = 0.0
    ended: float = 0.0
    damaged: bool = False
    error: DecodeError | None = None
    gpu_data: _core.GpuArray | None = None
    decoded_on: Literal["cpu", "gpu"] = "cpu"


class Analysis(NamedTuple):
    """Hold the results of `FlashCodec.analyse_bitstream`.

    Attributes:
        key_id: the number that a decoding request of this analysis and its outputs have.
        bitstream: the video, with its metadata.
        devices: where its frames are handed out, "cpu" or the GPUs that share it: "cuda:0", …
    """

    key_id: int
    bitstream: Bitstream
    devices: tuple[str, ...]


@dataclass(frozen=True)
class EngineEstimate:
    """Estimate what a kind of engines takes over a choice of frames, alone.

    Attributes:
        name: what people call such engines, "cores" or "NVDEC of cuda:0".
        engines: how many there are.
        seconds: from beginning to end, without waiting for other requests.
        chosen: it decodes such a request; several that are chosen share it.
    """

    name: str
    engines: int
    seconds: float
    chosen: bool


class FlashCodec:
    """Decode requests on a pool of engines, each a thread with a single-threaded decoder.

    Args:
        num_threads: engines of its own, at most so many of each kind; 0 shares the process-wide pool of the device, one
            engine a core.
        device: where outputs are: "cpu", or a GPU, "cuda:1" ("cuda": the first), or several GPUs, ["cuda:0", "cuda:1"]:
            each group is then on one of them. There NVDEC units decode, too: each video is decoded by them or by the
            cores, whichever is estimated to take less time, or by all of them where that is worth it.
        output_limit: bytes. Decoding pauses while this much waits to be taken.
        memory_limit: bytes that the decoders' pictures of the own pool may take; None: a quarter of the machine's
            memory. Where it would not do, fewer engines work at a time, but always one.
    """

    def __init__(
        self,
        num_threads: int = 0,
        *,
        device: str | Sequence[str] = "cpu",
        output_limit: int = OUTPUT_LIMIT,
        memory_limit: int | None = None,
    ) -> None:
        num_threads = checked_threads(num_threads)
        if output_limit <= 0 or (memory_limit is not None and memory_limit <= 0):
            raise ValueError("output_limit and memory_limit must be positive")
        if memory_limit is not None and num_threads == 0:
            raise ValueError("a memory_limit needs engines of its own: give num_threads, too")
        self._gpus = gpu_numbers(device)
        self._scheduler = scheduler_of(num_threads, memory_limit, self._gpus)
        self._session = _core.Session(self._scheduler, output_limit)
        self._layouts: dict[int, Layout] = {}
        self._key_ids: set[int] = set()  # of analyses without a request
        self._lock = threading.Lock()

    @property
    def num_engines(self) -> int:
        """Return how many engines there are, of all kinds."""
        return self._scheduler.engines

    @property
    def fallbacks(self) -> int:
        """Return how many segments cores decoded in place of a GPU's engines. These could not, or not to their end."""
        return self._scheduler.fallbacks

    def analyse_bitstream(
        self, source: Source, stream_index: int | None = None, limits: Limits | None = None
    ) -> Analysis:
        """Analyse a video for one decoding request, whose number is known from now on.

        Takes and raises what `flashcodec.analyse_bitstream` does.
        """
        stream = analyse_bitstream(source, stream_index, limits)
        key_id = _core.Session.new_id()
        with self._lock:
            self._key_ids.add(key_id)
        return Analysis(key_id, stream, tuple(f"cuda:{gpu}" for gpu in self._gpus) or ("cpu",))

    def add_decoding_request(
        self,
        source: Analysis | Bitstream | Source,
        indices: Indices,
        layout: Layout | None = None,
        *,
        priority: int = 0,
        turn: float | None = None,
        fast: bool = False,
        decode_on: Literal["fastest", "cpu", "gpu"] = "fastest",
        on_error: Literal["raise", "skip"] = "raise",
    ) -> int:
        """Queue a request and return its number at once.

        Args:
            source: an analysis of this instance, for one request; an analysed bitstream, or what `analyse_bitstream`
                takes (analysed here and now).
            indices: frames in presentation order; any order, repeats allowed.
            layout: by default RGB at native size.
            priority: requests of a higher one go first; of the same one, those with least left to decode, and the
                longer they wait the sooner.
            turn: a time (seconds of `time.monotonic`) that takes the place of that: of the same priority, the
                earliest goes first. `set_turn` changes it.
            fast: leave out the loop filter where no frame asked for is concerned itself: quicker, but the frames
                then differ a little.
            decode_on: by cores ("cpu") or by a GPU's units ("gpu"; other media are then an error); by
                default by whichever is estimated to take less time, and by cores what a GPU cannot decode.
            on_error: "raise": the first group that does not come out ends the request, and concealed errors only
                show as `damaged`. "skip": each group missing or damaged is an output with an `error`.

        Raises IndexError for a frame that is not there, ValueError for an empty list, DecodeError if the source
        cannot be analysed, ValueError for a turn that is no number, and for an analysis that has had a request.
        """
        if on_error not in ("raise", "skip"):
            raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}')
        if decode_on not in _DECODE_ON:
            raise ValueError(f'decode_on must be "fastest", "cpu" or "gpu", got {decode_on!r}')
        if isinstance(source, Analysis):
            key_id, stream, _ = source
        else:
            key_id, stream = None, source if isinstance(source, Bitstream) else analyse_bitstream(source)
        layout = (layout or RGBLayout()).sized(stream.height, stream.width)
        with self._lock:  # before its outputs can be taken, the request's layout must be known
            if key_id is not None and key_id not in self._key_ids:
                raise ValueError(f"the analysis {key_id} is another instance's, or has had its request")
            request = self._session.add(
                stream.core,
                to_indices(indices),
                layout.to_core(),
                priority=priority,
                turn=turn,
                fast=fast,
                decode_on=_DECODE_ON[decode_on],
                report=on_error == "skip",
                id=key_id,
            )
            self._key_ids.discard(request)
            self._layouts[request] = layout
        return request

    def get_decoding_output(self, timeout: float | None = None) -> DecodingOutput | None:
        """Wait for the next output of any request, at most `timeout` seconds (None: for ever; 0: look once).

        Return None if there was none in time.
        """
        output, layout = self._take(timeout)
        if output is None or layout is None:
            return None
        shape = layout.group_shape(1)
        intact = output.error is None
        group = output.first // layout.group_frames
        return DecodingOutput(
            request=output.request,
            first=output.first,
            count=output.count,
            first_group=group,
            data=output.take_data().reshape(shape) if intact and not self._gpus else None,
            done=output.done,
            gpu_data=output.take_gpu_array(list(shape)) if intact and self._gpus else None,
            engine=output.engine,
            began=output.began,
            ended=output.ended,
            damaged=output.damaged,
            error=output.error,
            decoded_on="gpu" if output.decoded_on_gpu else "cpu",
        )

    def estimate(
        self, source: Bitstream | Source, indices: Indices, *, decode_on: Literal["fastest", "cpu", "gpu"] = "fastest"
    ) -> tuple[EngineEstimate, ...]:
        """Tell which engines would decode these frames, and why: by the cost model that chooses them.

        Only those that can decode the stream, and may. Raises as `add_decoding_request`.
        """
        stream = source if isinstance(source, Bitstream) else analyse_bitstream(source)
        found = self._scheduler.estimate(stream.core, stream.checked(indices), _DECODE_ON[decode_on])
        return tuple(EngineEstimate(*each) for each in found)

    def _take(self, timeout: float | None) -> tuple[_core.Output | None, Layout | None]:
        while (output := self._session.take(timeout)) is not None:
            with self._lock:
                layout = self._layouts.get(output.request)
                if output.done:
                    self._layouts.pop(output.request, None)
            if layout is not None:  # else cancelled between the two lines above
                return output, layout
        return None, None

    def set_turn(self, request: int, turn: float) -> None:
        """Change a request's turn, while it waits or is decoded. Finished and unknown requests are ignored.

        Raises ValueError for a turn that is no number.
        """
        self._session.set_turn(request, turn)

    def cancel(self, request: int) -> None:
        """End a request: no output of it comes after this. Finished and unknown requests are ignored."""
        self._session.cancel(request)
        with self._lock:
            self._layouts.pop(request, None)

    def close(self) -> None:
        """Cancel all requests and end the engines, if they are this instance's own."""
        self._session.cancel_all()
        if self._scheduler not in _shared.schedulers.values():
            self._scheduler.close()
        with self._lock:
            self._layouts.clear()
            self._key_ids.clear()

    def __enter__(self) -> "FlashCodec":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Shared:
    """Hold what the process shares, made when first needed."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.schedulers: dict[tuple[int, ...], _core.Scheduler] = {}  # by the numbers of its GPUs
        self.codec: FlashCodec | None = None
        self.running: weakref.WeakSet[_core.Scheduler] = weakref.WeakSet()


_shared = _Shared()


def checked_threads(num_threads: SupportsIndex) -> int:
    """Return a number of threads. Raises ArgumentTypeError for no whole number, ValueError for one out of range."""
    threads = to_index("num_threads", num_threads)
    if threads < 0:
        raise ValueError(f"num_threads must not be negative, got {num_threads}")
    if threads > _MOST_THREADS:
        raise ValueError(f"num_threads must be at most {_MOST_THREADS}, got {num_threads}; 0 has one for each core")
    return threads


def scheduler_of(num_threads: int, memory_limit: int | None = None, gpus: tuple[int, ...] = ()) -> _core.Scheduler:
    """Return a pool of engines of one's own, or the process-wide one (one engine for each core) for 0."""
    with _shared.lock:
        if num_threads == 0 and gpus in _shared.schedulers:
            return _shared.schedulers[gpus]
        scheduler = _core.Scheduler(num_threads, memory_limit or 0, list(gpus))
        _shared.running.add(scheduler)
        if num_threads == 0:
            _shared.schedulers[gpus] = scheduler
        return scheduler


def gpu_numbers(device: str | Sequence[str]) -> tuple[int, ...]:
    """Return the GPU numbers in a device's name, or in several: none for "cpu".

    Raises ArgumentError for any other name, and for a GPU that is named twice.
    """
    if device == "cpu":
        return ()
    names = [device] if isinstance(device, str) else list(device)
    found = [re.fullmatch(r"cuda(?::(\d+))?", name) for name in names]
    numbers = tuple(int(match[1] or 0) for match in found if match)
    if not numbers or len(set(numbers)) < len(names):
        raise ArgumentError(f'device must be "cpu", "cuda", "cuda:N" or a list of different GPUs, got {device!r}')
    return numbers


def default_codec() -> FlashCodec:
    """Return the process-wide instance behind the module-level functions."""
    with _shared.lock:
        if _shared.codec is None:
            _shared.codec = FlashCodec()
        return _shared.codec


def _start_again_in_child() -> None:
    global _shared
    _shared = _Shared()  # threads do not survive a fork


os.register_at_fork(after_in_child=_start_again_in_child)


@atexit.register
def _join_engines() -> None:
    for scheduler in list(_shared.running):  # an engine may need the interpreter to let go of its source
        scheduler.close()
