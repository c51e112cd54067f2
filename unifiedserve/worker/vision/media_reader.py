"""Turn media into patches: videos on their decoder's engines, images in processes of their own."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np
import torch
from flashcodec.image import GpuImages
from torch import Tensor

import flashcodec
from unifiedserve.device import Device
from unifiedserve.errors import ConfigError, ErrorKind
from unifiedserve.messages.layouts import Views
from unifiedserve.messages.media import Source
from unifiedserve.messages.wire import MediaSource
from unifiedserve.reading.faults import fault
from unifiedserve.reading.jobs import ImageHead, ImagePixels
from unifiedserve.reading.readers import Reading
from unifiedserve.reading.work import opened
from unifiedserve.worker.vision.decoding_costs import DecodingCosts
from unifiedserve.worker.vision.flashcodec_videos import FlashCodecVideos
from unifiedserve.worker.vision.medium import Medium, Output
from unifiedserve.worker.vision.other_videos import Frames, OtherDecoder, OtherVideos, decoded_groups
from unifiedserve.worker.vision.pynvvideocodec_reader import pynvvideocodec
from unifiedserve.worker.vision.torchcodec_reader import torchcodec
from unifiedserve.worker.vision.turn_pool import TurnPool
from unifiedserve.worker.vision.videos import DecoderOptions, RunningVideos, Take, Videos
from unifiedserve.worker.vision.views import cut_views

_log = logging.getLogger(__name__)
_BEFORE_ALL = RunningVideos(priority=-(1 << 31))  # what is decoded already holds memory
_IMAGES = 2  # times the engines of videos: so many images at once, that slow ones leave some for others


class MediaReader:
    """Read the media of many requests at once. Its threads hand whatever finishes to `on_output`."""

    def __init__(
        self, options: DecoderOptions, device: Device, reading: Reading, on_output: Callable[[Output], None]
    ) -> None:
        self.learned = DecodingCosts()
        self._on_output = on_output
        self._reading = reading
        self._device = device
        self._videos = _videos(options, self._take_frames, self.learned)
        self._gpu_images = _gpu_images(options)
        self._max_pixels = options.max_pixels
        self._background = options.background
        engines = self._videos.engines
        self._pool = TurnPool(engines, "medium")
        self._image_pool = TurnPool(_IMAGES * engines, "image")

    @staticmethod
    def begin(priority: int = 0, turn: float = 0.0) -> RunningVideos:
        """Return what is decoded of a request: nothing so far.

        The lowest `priority` goes first, then the earliest turn (monotonic seconds).
        """
        return RunningVideos(priority, turn)

    def decode(self, uid: int, sources: Iterable[MediaSource], running: RunningVideos) -> None:
        """Begin to decode media of a request."""
        for source in sources:
            medium = Medium.of(uid, source)
            if source.plan.kind == "image":
                self._image_pool.submit(running, self._guarded, medium, self._read_image, source, running)
            elif source.frames:
                self._image_pool.submit(running, self._guarded, medium, self._read_frames, source, running)
            else:
                self._pool.submit(running, self._guarded, medium, self._videos.begin, source, running)

    def take_turn(self, running: RunningVideos, turn: float) -> None:
        """Decode a request's videos when it is their turn (monotonic seconds)."""
        if turn != running.turn:
            running.turn = turn
            self._videos.take_turn(running)

    def cancel(self, running: RunningVideos) -> None:
        """Stop work on the media of a request."""
        running.images.cancel()
        self._videos.cancel(running)

    def close(self) -> None:
        """Stop all decoding and its threads."""
        self._videos.close()
        self._reading.close()
        for pool in (self._pool, self._image_pool):
            pool.close()

    def _guarded(self, medium: Medium, work: Callable[..., None], *given: Any) -> None:
        """Do a step of one medium in a thread; whatever goes wrong ends its request, and nothing else."""
        begin = time.monotonic()
        output = Output(medium.uid, begin, begin)
        try:
            work(medium, *given)
            return
        except (flashcodec.DecodeError, OSError, ValueError, IndexError, MemoryError) as error:
            output.error, output.param = fault(medium.name, error), medium.param
        except Exception as error:
            _log.exception("%s", medium.name)
            output.error, output.kind = f"{medium.name}: internal error: {error}", ErrorKind.INTERNAL
        output.ended = time.monotonic()
        self._on_output(output)

    def _read_image(self, medium: Medium, source: MediaSource, running: RunningVideos) -> None:
        begin = time.monotonic()
        patches = self._image(source, medium.plan.layout, running)
        if isinstance(medium.plan.layout, Views):
            patches = cut_views(patches.cpu(), medium.plan.layout)
        output = medium.output(0, patches, begin, time.monotonic())
        self.learned.image(source.pixels, output.ended - begin)
        self._on_output(output)

    def _read_frames(self, medium: Medium, source: MediaSource, running: RunningVideos) -> None:
        """Decode a video that is images, which have one size."""
        images = list(source.where.pieces(source.frames))
        head = self._reading.read(ImageHead(images[0], self._max_pixels), running.images)
        width, height = msgspec.msgpack.decode(head, type=tuple[int, int])
        native = flashcodec.RGBLayout(height, width)

        def read(numbers: list[int]) -> Frames:
            pixels = (self._pixels(images[number], native, running) for number in numbers)
            return np.stack([np.frombuffer(image, np.uint8).reshape(height, width, 3) for image in pixels])

        for output in decoded_groups(medium, read, at_once=1):  # each may be as large as an image may be
            if running.cancelled:
                return
            self.learned.image(width * height * output.count, output.ended - output.began)
            self._take_frames(medium, output)

    def _image(self, source: MediaSource, layout: flashcodec.Layout, running: RunningVideos) -> Tensor:
        if self._gpu_images is not None:
            try:
                found = self._gpu_images.image_in_layout(opened(source.where), layout, self._max_pixels)
            except RuntimeError as error:
                _log.warning("%s: decoded on a core: %s", source.name, error)
                found = None
            if found is not None:
                return self._device.adopt(found)
        return torch.frombuffer(self._pixels(source.where, _of_codec(layout), running), dtype=torch.uint8)

    def _pixels(self, source: Source, layout: flashcodec.Layout, running: RunningVideos) -> bytes | memoryview:
        """Return an image in a layout, decoded in a process that can be ended."""
        return self._reading.read(ImagePixels(source, layout, self._max_pixels, self._background), running.images)

    def _take_frames(self, medium: Medium, decoded: flashcodec.DecodingOutput) -> None:
        """Hand on a group of frames, or why there is none, in the collector's thread."""
        if decoded.error is not None:
            now = time.monotonic()
            self._on_output(Output(medium.uid, now, now, error=f"{medium.name}: {decoded.error}", param=medium.param))
        elif isinstance(medium.plan.layout, Views):
            self._pool.submit(_BEFORE_ALL, self._guarded, medium, self._cut_frame, decoded)
        else:
            self._pass_on(medium, decoded, self._frames_of(decoded), decoded.ended)

    def _cut_frame(self, medium: Medium, decoded: flashcodec.DecodingOutput) -> None:
        if isinstance(medium.plan.layout, Views):
            patches = cut_views(self._frames_of(decoded).cpu(), medium.plan.layout)
            self._pass_on(medium, decoded, patches, time.monotonic())

    def _frames_of(self, decoded: flashcodec.DecodingOutput) -> Tensor:
        if decoded.data is not None:
            return torch.from_numpy(decoded.data)
        return self._device.adopt(decoded.gpu_data)

    def _pass_on(self, medium: Medium, decoded: flashcodec.DecodingOutput, patches: Tensor, ended: float) -> None:
        output = medium.output(medium.groups[decoded.first_group], patches, decoded.began, ended)
        output.engine, output.decoded_on = decoded.engine, decoded.decoded_on
        self._on_output(output)


def _of_codec(layout: flashcodec.Layout) -> flashcodec.Layout:
    """Return the layout in which FlashCodec hands out what is to be cut into views."""
    return layout.native if isinstance(layout, Views) else layout


def _gpu_images(options: DecoderOptions) -> GpuImages | None:
    """Return what decodes JPEGs on a GPU where only that is to decode; pixels of cores are those of `transformers`."""
    if options.decode_on != "gpu":
        return None
    try:
        return GpuImages(_gpu(options))
    except RuntimeError as error:
        _log.warning("images are decoded on cores: %s", error)
        return None


def _videos(options: DecoderOptions, take: Take, learned: DecodingCosts) -> Videos:
    if options.name == "flashcodec":
        return FlashCodecVideos(options, take, learned)
    return OtherVideos(_other(options), options.threads or len(os.sched_getaffinity(0)), take)


def _other(options: DecoderOptions) -> OtherDecoder:
    """Return another library's decoder, which uses the first device alone."""
    if options.name == "torchcodec":
        return torchcodec(options.places[0])
    if options.places[0] == "cpu":
        raise ConfigError("--video-decoder pynvvideocodec decodes on a GPU only: give --device cuda")
    return pynvvideocodec(_gpu(options))


def _gpu(options: DecoderOptions) -> int:
    """Return the number of the first GPU; 0 if there is none."""
    return int(options.places[0].partition(":")[2] or 0)
