"""Turn media bytes into patches, through FlashCodec, in the patch buffer of their encoder."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal, NamedTuple

import msgspec
from flashcodec.image import WHITE, Background
from flashcodec.limits import MAX_PIXELS

from unifiedserve.config import DecodeOn, ImageBackground, VideoDecoderName
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.pages import Pages
from unifiedserve.messages.wire import Embeddings, MediaSource, Patches, Room, VisionRequest, WatchedUnits
from unifiedserve.placement import FIRST_MEMORY, Route
from unifiedserve.reading.readers import ReadHere, Reading
from unifiedserve.scheduling import Costs
from unifiedserve.scheduling.rolling import Rolling
from unifiedserve.scheduling.vision import BufferPages
from unifiedserve.worker.vision.media_reader import MediaReader
from unifiedserve.worker.vision.medium import Output
from unifiedserve.worker.vision.videos import DecoderOptions, RunningVideos

_BACKGROUNDS: dict[ImageBackground, Background] = {"white": WHITE, "black": (0, 0, 0), "none": None}


class MediaBuffers(NamedTuple):
    """Hold the buffers of a memory that a request's media go through."""

    patches: RowBuffer
    visual: RowBuffer


class _Wanted(NamedTuple):
    """Name the units to decode of a request, and each one's patch and visual rows."""

    units: list[int]
    patches: list[int]
    visual: list[int]

    @classmethod
    def of(cls, request: VisionRequest) -> _Wanted:
        """Return what a request wants."""
        wanted = [(source, unit) for source in request.media for unit in source.wanted]
        return cls(
            [source.first_unit + unit for source, unit in wanted],
            [source.plan.patches_per_unit for source, _ in wanted],
            [source.plan.unit_tokens(unit) for source, unit in wanted],
        )


@dataclass(slots=True)
class _Job:
    """Track a request in the stage. Units are counted over all of its media, decoded or not.

    `pages` are those that it has taken for units that are still to be decoded: of the patch and the visual buffer. A
    `rolling` request gets them unit by unit, and is here until all have come back.
    """

    message: VisionRequest
    memory: str
    wanted: _Wanted
    arrived: float  # monotonic seconds
    videos: RunningVideos | None = None  # of an admitted request
    pages: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    rolling: Rolling | None = None

    @property
    def decoded(self) -> bool:
        """Tell whether no more patches come of it."""
        return not self.pages and (self.rolling is None or self.rolling.given_out)


class VisionStage:
    """Decode admitted requests on all engines at once, into the memory of their encoders.

    Finished pieces are queued here and `wake` is called: the worker's loop never waits for a decoder.
    """

    def __init__(
        self,
        buffers: Mapping[str, MediaBuffers],
        instance: int,
        threads: int,
        wake: Callable[[], None],
        decoder: VideoDecoderName = "flashcodec",
        decode_on: DecodeOn = "fastest",
        max_pixels: int = MAX_PIXELS,
        background: ImageBackground = "white",
        reading: Reading | None = None,
        memory_of: Callable[[Route], str] = lambda route: FIRST_MEMORY,
        frames: Sequence[str] = (),
    ) -> None:
        """Write to `buffers`, by memory; `memory_of` tells the memory of the encoders of a route.

        The decoders of these devices decode, too: `frames` are the first places for what comes out.
        """
        self._buffers = buffers
        self._memory_of = memory_of
        devices = [each.patches.device for each in buffers.values()]
        places = tuple(dict.fromkeys([*frames, *(device.frames for device in devices)]))
        self._several = len(places) > 1
        self._instance = instance
        self._wake = wake
        self._outputs: deque[Output] = deque()
        self._jobs: dict[int, _Job] = {}
        options = DecoderOptions(decoder, threads, decode_on, max_pixels, _BACKGROUNDS[background], places)
        self._reader = MediaReader(options, devices[0], reading or ReadHere(), self._finished)

    def accept(self, message: VisionRequest) -> BufferPages:
        """Take a request in, to be decoded when it is let in; return how many pages of its memory have to be free."""
        memory, wanted = self._memory_of(message.ticket.route), _Wanted.of(message)
        job = self._jobs[message.ticket.uid] = _Job(message, memory, wanted, monotonic())
        patches, visual = self._buffers[memory]
        if message.window:
            needs = map(BufferPages, map(patches.pages_for, wanted.patches), map(visual.pages_for, wanted.visual))
            job.rolling = Rolling(message.window, zip(wanted.units, needs, strict=True))
            return BufferPages(message.window.patch, message.window.visual)
        cached = sum(len(pages.numbers) for pages in message.cached.values())
        return BufferPages(
            sum(map(patches.pages_for, wanted.patches)), cached + sum(map(visual.pages_for, wanted.visual))
        )

    def memory(self, uid: int) -> str:
        """Return the memory in which a request that is here has its pages."""
        return self._jobs[uid].memory

    def __contains__(self, uid: int) -> bool:
        """Tell whether a request is here."""
        return uid in self._jobs

    @property
    def costs(self) -> Costs:
        """Return what decoding has cost lately."""
        return self._reader.learned.costs

    @property
    def free(self) -> dict[str, BufferPages]:
        """Return how many pages nobody uses, by memory."""
        return {
            memory: BufferPages(patches.pool.free_pages(), visual.pool.free_pages())
            for memory, (patches, visual) in self._buffers.items()
        }

    def used_pages(self, memory: str) -> tuple[int, int]:
        """Return how many pages of a memory's patch and visual buffer are in use."""
        patches, visual = self._buffers[memory]
        return patches.pool.used_pages(), visual.pool.used_pages()

    def take_pages(self, uid: int) -> Literal["taken", "full", "stale"]:
        """Take all pages that a request needs until it is encoded, or none of them.

        "full": others have taken some since it was planned; "stale": visual tokens that were in the cache are gone.
        """
        job = self._jobs[uid]
        patches, visual = self._buffers[job.memory]
        if job.rolling:
            return "taken" if self._take_window(uid, job.rolling, patches, visual) else "full"
        recalled = visual.recall_all(job.message.cached.values(), uid, self._instance)
        if recalled is None:  # first: the others might take them
            return "stale"
        for_patches = patches.take(job.wanted.patches, uid, self._instance)
        for_visual = for_patches and visual.take(job.wanted.visual, uid, self._instance)
        if for_patches and for_visual:
            job.pages = dict(zip(job.wanted.units, zip(for_patches, for_visual, strict=True), strict=True))
            return "taken"
        visual.release(recalled)
        patches.release([page for pages in for_patches or [] for page in pages])
        return "full"

    def recalled(self, uid: int) -> list[Embeddings]:
        """Return the units that were in the cache, whose pages are taken."""
        job = self._jobs[uid]
        return [] if job.rolling else [_embeddings(uid, unit, pages) for unit, pages in job.message.cached.items()]

    def start(self, uid: int, turn: float) -> float:
        """Begin to decode all media of a request that has its pages. Its turn is this (monotonic seconds).

        Returns when (monotonic seconds) it had arrived.
        """
        job = self._jobs[uid]
        job.videos = self._reader.begin(job.message.ticket.priority, turn)
        if job.rolling is None:
            self._reader.decode(uid, job.message.media, job.videos)
        return job.arrived

    def roll(self, uid: int) -> list[Embeddings]:
        """Decode the next units of a request with a window, as far as pages go.

        Returns those that need not be decoded, because they were in the cache.
        """
        job = self._jobs[uid]
        if job.rolling is None or job.videos is None:
            return []
        recalled: list[Embeddings] = []
        while True:
            job.rolling.recall(lambda unit: self._recall(job, unit, recalled))
            if (given := job.rolling.give()) is None:
                break
            unit, job.pages[unit] = given
        if job.rolling.given_out:
            self._give_back(job)
        units = job.rolling.begin()
        self._reader.decode(uid, _parts(job.message.media, units), job.videos)
        return recalled

    def take_back(self, message: Room) -> bool:
        """Take pages of a request's window back; return whether it goes on with them, or they are free."""
        job = self._jobs[message.uid]
        if job.rolling is None:
            raise ValueError(f"request {message.uid} has no window")
        job.rolling.take_back(message.patch, message.visual)
        if not job.rolling.given_out:
            return True
        self._give_back(job)
        return False

    def ended(self, uid: int) -> bool:
        """Tell whether no more patches come of a request that is here; forget it if all of its pages have come back."""
        job = self._jobs[uid]
        if job.decoded and (job.rolling is None or job.rolling.returned):
            self.drop(uid)
        return job.decoded

    def take_turn(self, uid: int, turn: float) -> None:
        """Decode a request when it is its turn (monotonic seconds), if it is in decoding."""
        if (running := self._jobs[uid].videos) is not None:
            self._reader.take_turn(running, turn)

    def take_outputs(self) -> list[Output]:
        """Return what has finished for requests that are still here."""
        outputs = [self._outputs.popleft() for _ in range(len(self._outputs))]
        return [output for output in outputs if output.uid in self._jobs]

    def write(self, output: Output) -> Patches | None:
        """Put decoded units into the patch buffer; None if the request has failed meanwhile."""
        job = self._jobs.get(output.uid)
        if job is None or output.patches is None or output.plan is None:
            return None
        rows, buffer = output.plan.patches_per_unit, self._buffers[job.memory].patches
        there = output.patches.device == buffer.device.torch
        patches = output.patches if there else buffer.device.upload(output.patches)
        pages, visual = zip(*(job.pages.pop(unit) for unit in output.units), strict=True)
        buffer.write(patches.view(-1, buffer.width), [(taken, rows) for taken in pages])
        if there or self._several:  # the decoder gets its memory back with the output, and the outbox fences one device
            buffer.device.fence()
        return Patches(uid=output.uid, units=output.units, pages=list(pages), visual=list(visual), last=job.decoded)

    @property
    def decoding(self) -> list[int]:
        """Return the uids of the requests in decoding."""
        return [uid for uid, job in self._jobs.items() if job.videos is not None and not job.decoded]

    def route(self, uid: int) -> Route:
        """Return the route of a request that is here."""
        return self._jobs[uid].message.ticket.route

    def is_watched(self, uid: int) -> bool:
        """Tell whether somebody wants to see what is decoded for a request."""
        job = self._jobs.get(uid)
        return job is not None and job.message.watched and job.rolling is None  # pages of a window are not taken again

    def remember(self, patches: Patches, memory: str) -> WatchedUnits:
        """Return where these patches, still held, can be read until their pages are taken again."""
        buffer = self._buffers[memory].patches
        epochs = [buffer.pool.remember(pages).tolist() for pages in patches.pages]
        pages = [Pages(tuple(pages), tuple(begun)) for pages, begun in zip(patches.pages, epochs, strict=True)]
        return WatchedUnits(patches.uid, patches.units, pages)

    def drop(self, uid: int) -> None:
        """Forget a request, if it is here, and release its pages; its decoding is cancelled."""
        job = self._jobs.pop(uid, None)
        if job is None:
            return
        if job.videos is not None:
            self._reader.cancel(job.videos)
        buffers = self._buffers[job.memory]
        for patches, visual in job.pages.values():
            buffers.patches.release(patches)
            buffers.visual.release(visual)
        self._give_back(job)

    def close(self) -> None:
        """Stop all decoding and its threads."""
        self._reader.close()

    def _take_window(self, uid: int, rolling: Rolling, patches: RowBuffer, visual: RowBuffer) -> bool:
        for_patches = patches.pool.allocate(rolling.window.patch, uid, self._instance)
        if for_patches is None:
            return False
        for_visual = visual.pool.allocate(rolling.window.visual, uid, self._instance)
        if for_visual is None:
            patches.release(for_patches.tolist())
            return False
        rolling.take(for_patches.tolist(), for_visual.tolist())
        return True

    def _recall(self, job: _Job, unit: int, recalled: list[Embeddings]) -> bool:
        """Recall a unit from the cache, if it is still there."""
        pages, uid = job.message.cached.get(unit), job.message.ticket.uid
        if pages is None or not self._buffers[job.memory].visual.recall(pages, uid, self._instance):
            return False
        recalled.append(_embeddings(uid, unit, pages))
        return True

    def _give_back(self, job: _Job) -> None:
        """Release the pages of a window that no unit has."""
        if job.rolling:
            patches, visual = job.rolling.leave()
            self._buffers[job.memory].patches.release(patches)
            self._buffers[job.memory].visual.release(visual)

    def _finished(self, output: Output) -> None:
        self._outputs.append(output)
        self._wake()


def _embeddings(uid: int, unit: int, pages: Pages) -> Embeddings:
    return Embeddings(uid=uid, unit=unit, pages=list(pages.numbers), cached=True)


def _parts(media: Collection[MediaSource], units: Collection[int]) -> Iterator[MediaSource]:
    """Yield the media that these units are of, as far as they are."""
    for source in media:
        own = range(source.first_unit, source.first_unit + source.plan.units)
        if wanted := [unit - source.first_unit for unit in units if unit in own]:
            yield msgspec.structs.replace(source, units=wanted)
