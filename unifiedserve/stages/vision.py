"""Vision: media bytes to patches, through FlashCodec, into the patch buffer."""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flashcodec.image import image_in_layout

import flashcodec
from ipc_buffers import Arena
from unifiedserve.memory.content_index import Pages
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages import Decoded, DecodeMedia, MediaSource, Patches
from unifiedserve.models.media import MediaPlan, PatchGrid, Picture, Tiles, Views
from unifiedserve.scheduling import VisionState
from unifiedserve.stages.vision_views import cut_views

_STARTERS = 2

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Output:
    """Decoded units of a request, or why there are none; times are monotonic seconds."""

    uid: int
    started: float
    ended: float
    units: list[int] = field(default_factory=list)
    plan: MediaPlan | None = None
    patches: np.ndarray | None = None  # uint8 [units * patches_per_unit, row bytes]
    engine: int = 0
    error: str = ""
    status: int = 400  # HTTP status of the error


@dataclass(slots=True)
class _Medium:
    """An image or a video that is being decoded: the units in `wanted`, in `groups` of frames."""

    uid: int
    name: str
    plan: MediaPlan
    first_unit: int  # of the request
    wanted: set[int]
    groups: list[int]


@dataclass(slots=True)
class _Job:
    """A request in the stage. Units are counted over all of its media, decoded or not."""

    message: DecodeMedia
    state: VisionState
    units_left: int
    videos: set[int] = field(default_factory=set)  # FlashCodec's requests
    dropped: bool = False


class VisionStage:
    """Decodes admitted requests on all engines at once.

    Videos run on FlashCodec's engines; images, and the analysis of videos, on a small thread pool. Finished
    pieces are queued here and `wake` is called: the worker's loop never waits for a decoder.
    """

    def __init__(self, patches: RowBuffer, instance: int, threads: int, wake: Callable[[], None]) -> None:
        self._buffer = patches
        self._instance = instance
        self._wake = wake
        self._codec = flashcodec.FlashCodec(num_threads=threads)
        self._starters = ThreadPoolExecutor(_STARTERS, thread_name_prefix="medium")
        self._outputs: deque[Output] = deque()
        self._videos: dict[int, _Medium] = {}
        self._videos_lock = threading.Lock()
        self._jobs: dict[int, _Job] = {}
        self._closing = threading.Event()
        self._collector = threading.Thread(target=self._collect_or_die, name="decoded")
        self._collector.start()

    def accept(self, message: DecodeMedia) -> None:
        """A request arrived."""
        wanted = [(len(source.wanted), source.plan.patches_per_unit) for source in message.media]
        pages = sum(units * self._buffer.pages_for(patches) for units, patches in wanted)
        state = VisionState(message.uid, message.arrival, pages, priority=message.priority)
        self._jobs[message.uid] = _Job(message, state, sum(units for units, _ in wanted))

    @property
    def free_pages(self) -> int:
        """Patch pages neither in use nor promised to an admitted request."""
        promised = sum(job.state.pages for job in self._jobs.values() if job.state.admitted)
        return self._buffer.pool.free_pages() - promised

    @property
    def used_pages(self) -> int:
        """Patch pages that hold patches."""
        return self._buffer.pool.used_pages()

    def states(self) -> list[VisionState]:
        """Requests by their turn."""
        return sorted((job.state for job in self._jobs.values()), key=lambda s: s.turn)

    def start(self, uid: int) -> None:
        """Begin to decode all media of an admitted request."""
        job = self._jobs[uid]
        job.state.admitted = True
        for source in job.message.media:
            plan, wanted = source.plan, set(source.wanted)
            groups = sorted({unit // plan.units_per_group for unit in wanted})
            medium = _Medium(uid, source.name, plan, source.first_unit, wanted, groups)
            decode = self._decode_image if source.plan.kind == "image" else self._begin_video
            self._starters.submit(self._guarded, medium, decode, job, source)

    def take_outputs(self) -> list[Output]:
        """What has finished for requests that are still here."""
        outputs = [self._outputs.popleft() for _ in range(len(self._outputs))]
        return [output for output in outputs if output.uid in self._jobs]

    def write(self, output: Output) -> Patches | None:
        """Put decoded units into the patch buffer; None if the request has failed meanwhile.

        A request whose last unit this is leaves the stage.
        """
        job = self._jobs.get(output.uid)
        if job is None or output.patches is None or output.plan is None:
            return None
        pages = []
        for rows in torch.from_numpy(output.patches).view(-1, output.plan.patches_per_unit, self._buffer.width):
            taken = self._buffer.put(rows, output.uid, self._instance)
            if taken is None:
                raise RuntimeError(f"patch buffer: the pages promised to request {output.uid} are gone")
            job.state.pages -= len(taken)
            pages.append(taken)
        job.units_left -= len(pages)
        if job.units_left == 0:
            self.drop(output.uid)
        return Patches(uid=output.uid, units=output.units, pages=pages)

    def is_watched(self, uid: int) -> bool:
        """Whether somebody wants to see what is decoded for a request."""
        job = self._jobs.get(uid)
        return job is not None and job.message.watched

    def remember(self, patches: Patches) -> Decoded:
        """Where these patches, still held, can be read until their pages are taken anew."""
        epochs = [self._buffer.pool.remember(pages).tolist() for pages in patches.pages]
        pages = [Pages(tuple(pages), tuple(begun)) for pages, begun in zip(patches.pages, epochs, strict=True)]
        return Decoded(patches.uid, patches.units, pages)

    def drop(self, uid: int) -> None:
        """Forget a request; what is still being decoded for it is cancelled."""
        job = self._jobs.pop(uid, None)
        if job is None:
            return
        with self._videos_lock:
            job.dropped = True
            running = [request for request in job.videos if self._videos.pop(request, None)]
        for request in running:
            self._codec.cancel(request)

    def close(self) -> None:
        """Stop all decoding and its threads."""
        self._closing.set()
        self._codec.close()
        self._collector.join()
        self._starters.shutdown(cancel_futures=True)

    def _guarded(self, medium: _Medium, work: Callable[..., None], *given: Any) -> None:
        """Thread: a step of one medium; whatever goes wrong ends its request, and nothing else."""
        begin = time.monotonic()
        output = Output(medium.uid, begin, begin)
        try:
            work(medium, *given)
            return
        except (flashcodec.DecodeError, OSError, ValueError, IndexError, MemoryError) as error:
            output.error = f"{medium.name}: {error}"
        except Exception as error:
            _log.exception("%s", medium.name)
            output.error, output.status = f"{medium.name}: internal error: {error}", 500
        output.ended = time.monotonic()
        self._finished(output)

    def _begin_video(self, medium: _Medium, job: _Job, source: MediaSource) -> None:
        bitstream = flashcodec.analyse_bitstream(_open(source))
        frames = medium.plan.frames_of(medium.groups)
        with self._videos_lock:  # held until it is entered, so that no output comes before
            if not job.dropped:
                request = self._codec.add_decoding_request(bitstream, frames, layout_of(medium.plan))
                self._videos[request] = medium
                job.videos.add(request)

    def _decode_image(self, medium: _Medium, job: _Job, source: MediaSource) -> None:
        begin = time.monotonic()
        patches = image_in_layout(_open(source), layout_of(medium.plan))
        if isinstance(medium.plan.layout, Views):
            patches = cut_views(patches, medium.plan.layout)
        self._finish_group(medium, 0, patches, begin, time.monotonic())

    def _collect_or_die(self) -> None:
        """Without its collector the stage would hang: better that the supervisor replaces the worker."""
        try:
            self._collect()
        except Exception:
            _log.exception("cannot take decoded frames")
            os._exit(1)

    def _collect(self) -> None:
        """Thread: hand FlashCodec's outputs to the loop, until the stage is closed."""
        while not self._closing.is_set():
            decoded = self._codec.get_decoding_output(timeout=0.5)
            if decoded is None:
                continue
            with self._videos_lock:
                video = self._videos.get(decoded.request)
            if video is None:
                continue
            if decoded.error is not None:
                now = time.monotonic()
                self._finished(Output(video.uid, now, now, error=f"{video.name}: {decoded.error}"))
                continue
            if isinstance(video.plan.layout, Views):
                self._starters.submit(self._guarded, video, self._cut_frame, decoded)
            elif decoded.data is not None:
                self._finish_frames(video, decoded, decoded.data, decoded.ended)

    def _cut_frame(self, medium: _Medium, decoded: flashcodec.DecodingOutput) -> None:
        if decoded.data is not None and isinstance(medium.plan.layout, Views):
            patches = cut_views(decoded.data, medium.plan.layout)
            self._finish_frames(medium, decoded, patches, time.monotonic())

    def _finish_frames(
        self, medium: _Medium, decoded: flashcodec.DecodingOutput, patches: np.ndarray, ended: float
    ) -> None:
        group = medium.groups[decoded.first_group]
        self._finish_group(medium, group, patches, decoded.began, ended, decoded.engine)

    def _finish_group(
        self, medium: _Medium, group: int, patches: np.ndarray, began: float, ended: float, engine: int = 0
    ) -> None:
        """Of a group of frames, or an image, the units that are wanted."""
        count = medium.plan.units_per_group
        wanted = [unit for unit in range(count) if group * count + unit in medium.wanted]
        rows = patches.reshape(count, -1)
        if len(wanted) < count:
            rows = rows[wanted]
        units = [medium.first_unit + group * count + unit for unit in wanted]
        self._finished(Output(medium.uid, began, ended, units, medium.plan, rows, engine))

    def _finished(self, output: Output) -> None:
        self._outputs.append(output)
        self._wake()


def _open(source: MediaSource) -> memoryview | Path:
    if source.arena is None:
        return Path(source.path or "")
    return Arena.attach(source.arena).buffer()[: source.size]  # the view keeps the memory mapped


def layout_of(plan: MediaPlan) -> flashcodec.Layout:
    """FlashCodec's name for a plan's layout."""
    match plan.layout:
        case PatchGrid() as grid:
            return flashcodec.PatchLayout(
                grid.height, grid.width, grid.patch_size, grid.temporal_patch_size, grid.merge_size
            )
        case Picture() as picture:
            return flashcodec.RGBLayout(
                picture.height,
                picture.width,
                crop=picture.crop,
                interpolation=picture.interpolation,
                square=picture.square,
            )
        case Tiles() as tiles:
            return flashcodec.TileLayout(
                tiles.rows,
                tiles.columns,
                tiles.tile,
                tiles.thumbnail,
                tiles.content,
                tiles.interpolation,
                tiles.corner,
            )
        case Views() as views:  # at their own size; `cut_views` does the rest
            return flashcodec.RGBLayout(views.height, views.width)
