"""Vision: media bytes to patches, through FlashCodec, into the patch buffer."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from flashcodec.image import WHITE, Background

import flashcodec
from unifiedserve.config import DecodeOn, ImageBackground, Order, VideoDecoderName
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.pages import Pages
from unifiedserve.messages.wire import Patches, VisionRequest, WatchedUnits
from unifiedserve.placement import Route
from unifiedserve.reading.readers import ReadHere, Reading
from unifiedserve.scheduling import Costs, Queue, VisionState
from unifiedserve.worker.vision.media_reader import MediaReader
from unifiedserve.worker.vision.medium import Output
from unifiedserve.worker.vision.videos import DecoderOptions, RunningVideos

_BACKGROUNDS: dict[ImageBackground, Background] = {"white": WHITE, "black": (0, 0, 0), "none": None}


@dataclass(slots=True)
class _Job:
    """A request in the stage. Units are counted over all of its media, decoded or not."""

    message: VisionRequest
    state: VisionState
    units_left: int
    arrived: float  # monotonic seconds
    videos: RunningVideos | None = None  # of an admitted request


class VisionStage:
    """Decodes admitted requests on all engines at once.

    Finished pieces are queued here and `wake` is called: the worker's loop never waits for a decoder.
    """

    def __init__(
        self,
        patches: RowBuffer,
        instance: int,
        threads: int,
        wake: Callable[[], None],
        order: Order = "fcfs",
        decoder: VideoDecoderName = "flashcodec",
        decode_on: DecodeOn = "fastest",
        max_pixels: int = flashcodec.Limits.max_pixels,
        background: ImageBackground = "white",
        reading: Reading | None = None,
    ) -> None:
        self._buffer = patches
        self._instance = instance
        self._wake = wake
        self._outputs: deque[Output] = deque()
        self._jobs: dict[int, _Job] = {}
        self._queue: Queue[VisionState] = Queue(order)
        options = DecoderOptions(decoder, threads, decode_on, max_pixels, _BACKGROUNDS[background])
        self._reader = MediaReader(options, patches.device, reading or ReadHere(), self._finished)

    def accept(self, message: VisionRequest) -> None:
        """Take a request in, to be decoded when its turn comes."""
        wanted = [(len(source.wanted), source.plan.patches_per_unit) for source in message.media]
        pages = sum(units * self._buffer.pages_for(patches) for units, patches in wanted)
        state = VisionState(message.ticket, pages)
        self._queue.add(state)
        self._jobs[message.ticket.uid] = _Job(message, state, sum(units for units, _ in wanted), time.monotonic())

    @property
    def costs(self) -> Costs:
        """Return what decoding has cost lately."""
        return self._reader.learned.costs

    @property
    def free_pages(self) -> int:
        """Return how many patch pages are neither in use nor promised to an admitted request."""
        promised = sum(job.state.pages for job in self._jobs.values() if job.state.admitted)
        return self._buffer.pool.free_pages() - promised

    @property
    def used_pages(self) -> int:
        """Return how many pages hold patches."""
        return self._buffer.pool.used_pages()

    def states(self) -> list[VisionState]:
        """Return what the scheduler sees of the requests, in the order in which they are served."""
        states = self._queue.in_turn(time.monotonic())
        for state in states:
            if (running := self._jobs[state.ticket.uid].videos) is not None:
                self._reader.take_turn(running, state.turn)
        return states

    def start(self, uid: int) -> float:
        """Admit a request and begin to decode all of its media; return when (monotonic seconds) it had arrived."""
        job = self._jobs[uid]
        job.state.admit()
        job.videos = self._reader.start(uid, job.message.media, job.message.ticket.priority, job.state.turn)
        return job.arrived

    def take_outputs(self) -> list[Output]:
        """Return what has finished for requests that are still here."""
        outputs = [self._outputs.popleft() for _ in range(len(self._outputs))]
        return [output for output in outputs if output.uid in self._jobs]

    def write(self, output: Output) -> Patches | None:
        """Put decoded units into the patch buffer; None if the request has failed meanwhile.

        A request whose last unit this is leaves the stage. Raises RuntimeError if promised pages are gone.
        """
        job = self._jobs.get(output.uid)
        if job is None or output.patches is None or output.plan is None:
            return None
        pages = []
        device = self._buffer.device
        on_device = output.patches.device == device.torch
        patches = output.patches if on_device else device.upload(output.patches)
        for rows in patches.view(-1, output.plan.patches_per_unit, self._buffer.width):
            taken = self._buffer.put(rows, output.uid, self._instance)
            if taken is None:
                raise RuntimeError(f"patch buffer: the pages promised to request {output.uid} are gone")
            job.state.pages -= len(taken)
            pages.append(taken)
        if on_device:
            device.fence()  # the decoder gets its memory back with the output
        job.units_left -= len(pages)
        if job.units_left == 0:
            self.drop(output.uid)
        return Patches(uid=output.uid, units=output.units, pages=pages)

    def route(self, uid: int) -> Route:
        """Return who serves a request that is here."""
        return self._jobs[uid].message.ticket.route

    def is_watched(self, uid: int) -> bool:
        """Tell whether somebody wants to see what is decoded for a request."""
        job = self._jobs.get(uid)
        return job is not None and job.message.watched

    def remember(self, patches: Patches) -> WatchedUnits:
        """Return where these patches, still held, can be read until their pages are taken anew."""
        epochs = [self._buffer.pool.remember(pages).tolist() for pages in patches.pages]
        pages = [Pages(tuple(pages), tuple(begun)) for pages, begun in zip(patches.pages, epochs, strict=True)]
        return WatchedUnits(patches.uid, patches.units, pages)

    def drop(self, uid: int) -> None:
        """Forget a request, if it is here; what is still being decoded for it is cancelled."""
        job = self._jobs.pop(uid, None)
        if job is None:
            return
        self._queue.remove(job.state)
        if job.videos is not None:
            self._reader.cancel(job.videos)

    def close(self) -> None:
        """Stop all decoding and its threads."""
        self._reader.close()

    def _finished(self, output: Output) -> None:
        self._outputs.append(output)
        self._wake()
