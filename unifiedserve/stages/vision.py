"""Vision: media bytes to patches, through FlashCodec, into the patch buffer."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from flashcodec.image import image_patches

import flashcodec
from ipc_buffers import Arena
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages import DecodeMedia, MediaSource, Patches
from unifiedserve.models.media import MediaPlan
from unifiedserve.scheduling import VisionState

_IMAGE_THREADS = 2


@dataclass(slots=True)
class Output:
    """Decoded units of a request, or why there are none; times are monotonic seconds."""

    uid: int
    started: float
    ended: float
    first_unit: int = 0
    plan: MediaPlan | None = None
    patches: np.ndarray | None = None  # uint8 [units * patches_per_unit, row bytes]
    engine: int = 0
    error: str = ""


@dataclass(slots=True)
class _Video:
    """A video in FlashCodec."""

    uid: int
    name: str
    first_unit: int
    plan: MediaPlan


@dataclass(slots=True)
class _Job:
    """A request in the stage. Units are counted over all of its media."""

    message: DecodeMedia
    state: VisionState
    units_left: int
    arenas: list[Arena] = field(default_factory=list)
    videos: set[int] = field(default_factory=set)  # FlashCodec's requests


class VisionStage:
    """Decodes admitted requests on all engines at once.

    Videos run on FlashCodec's engines, images on a small thread pool. Finished pieces are queued here and
    `wake` is called: the worker's loop never waits for a decoder.
    """

    def __init__(self, patches: RowBuffer, instance: int, threads: int, wake: Callable[[], None]) -> None:
        self._buffer = patches
        self._instance = instance
        self._wake = wake
        self._codec = flashcodec.FlashCodec(num_threads=threads)
        self._images = ThreadPoolExecutor(_IMAGE_THREADS, thread_name_prefix="image")
        self._outputs: deque[Output] = deque()
        self._videos: dict[int, _Video] = {}
        self._videos_lock = threading.Lock()
        self._jobs: dict[int, _Job] = {}
        self._closing = threading.Event()
        self._collector = threading.Thread(target=self._collect, name="decoded")
        self._collector.start()

    def accept(self, message: DecodeMedia) -> None:
        """A request arrived."""
        plans = [source.plan for source in message.media]
        pages = sum(plan.units * self._buffer.pages_for(plan.patches_per_unit) for plan in plans)
        state = VisionState(message.uid, message.arrival, pages)
        self._jobs[message.uid] = _Job(message, state, sum(plan.units for plan in plans))

    @property
    def free_pages(self) -> int:
        """Patch pages neither in use nor promised to an admitted request."""
        promised = sum(job.state.pages for job in self._jobs.values() if job.state.admitted)
        return self._buffer.pool.free_pages() - promised

    def states(self) -> list[VisionState]:
        """Requests in order of arrival."""
        return sorted((job.state for job in self._jobs.values()), key=lambda s: (s.arrival, s.uid))

    def start(self, uid: int) -> None:
        """Begin to decode all media of an admitted request."""
        job = self._jobs[uid]
        job.state.admitted = True
        first_unit = 0
        for source in job.message.media:
            begin = time.monotonic()
            try:
                self._start_one(job, source, first_unit)
            except (flashcodec.DecodeError, OSError, ValueError) as error:
                self._finished(Output(uid, begin, time.monotonic(), error=f"{source.name}: {error}"))
                return
            first_unit += source.plan.units

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
        return Patches(uid=output.uid, first_unit=output.first_unit, pages=pages)

    def drop(self, uid: int) -> None:
        """Forget a request; what is still being decoded for it is cancelled."""
        job = self._jobs.pop(uid, None)
        if job is None:
            return
        with self._videos_lock:
            running = [request for request in job.videos if self._videos.pop(request, None)]
        for request in running:
            self._codec.cancel(request)

    def close(self) -> None:
        """Stop all decoding and its threads."""
        self._closing.set()
        self._codec.close()
        self._images.shutdown(cancel_futures=True)
        self._collector.join()

    def _start_one(self, job: _Job, source: MediaSource, first_unit: int) -> None:
        data = self._open(job, source)
        plan = source.plan
        layout = flashcodec.PatchLayout(
            plan.height, plan.width, plan.patch_size, plan.temporal_patch_size, plan.merge_size
        )
        video = _Video(job.state.uid, source.name, first_unit, plan)
        if plan.kind == "image":
            self._images.submit(self._decode_image, video, data, layout)
            return
        with self._videos_lock:  # held until it is entered, so that no output comes before
            request = self._codec.add_decoding_request(data, plan.frame_indices, layout)
            self._videos[request] = video
        job.videos.add(request)

    def _open(self, job: _Job, source: MediaSource) -> memoryview | Path:
        if source.arena is None:
            return Path(source.path or "")
        arena = Arena.attach(source.arena)
        job.arenas.append(arena)
        return arena.buffer()[: source.size]

    def _decode_image(self, image: _Video, data: memoryview | Path, layout: flashcodec.PatchLayout) -> None:
        output = Output(image.uid, time.monotonic(), 0.0, image.first_unit, image.plan)
        try:
            output.patches = image_patches(data, layout)
        except (flashcodec.DecodeError, OSError, ValueError, MemoryError) as error:
            output.error = f"{image.name}: {error}"
        output.ended = time.monotonic()
        self._finished(output)

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
            unit = video.first_unit + decoded.first_group
            output = Output(video.uid, decoded.began, decoded.ended, unit, video.plan, decoded.data, decoded.engine)
            self._finished(output)

    def _finished(self, output: Output) -> None:
        self._outputs.append(output)
        self._wake()
