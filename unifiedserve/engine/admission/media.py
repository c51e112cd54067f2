"""Identify media as they come in, and choose the frames and pixels to look at."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

import flashcodec
from unifiedserve.errors import RequestError
from unifiedserve.messages.api import MediaInput
from unifiedserve.messages.media import Source
from unifiedserve.models.processor import MediaPlan, Processor, PromptError, VideoInfo
from unifiedserve.reading.faults import fault
from unifiedserve.reading.jobs import ImageHead, VideoHead
from unifiedserve.reading.readers import Cancellation, Reading


class ImageSize(NamedTuple):
    """Count the pixels of an image."""

    width: int
    height: int


MediaInfo = ImageSize | VideoInfo


def media_name(number: int, media: MediaInput) -> str:
    """Return how errors name a medium: its kind, and its place among the request's media from 1."""
    return f"{media.kind} {number + 1}"


def inspect(
    media: Sequence[MediaInput], max_image_pixels: int, reading: Reading, cancellation: Cancellation | None = None
) -> list[MediaInfo]:
    """Return what the processor must know of each medium. Raises RequestError for one that cannot be taken."""
    heads = _Heads(reading, max_image_pixels, cancellation)
    keys = [(medium.kind, medium.where, medium.fps) for medium in media]  # a request may have a medium several times
    found: dict[tuple[str, Source, float], MediaInfo] = {}
    for number, (key, medium) in enumerate(zip(keys, media, strict=True)):
        if key not in found:
            found[key] = _inspect(media_name(number, medium), medium, heads)
    return [found[key] for key in keys]


def plan(processor: Processor, media: Sequence[MediaInput], infos: Sequence[MediaInfo]) -> list[MediaPlan]:
    """Return how each medium is looked at. Raises RequestError for options that do not go with it."""
    plans = [
        _plan(processor, media_name(number, medium), medium, info)
        for number, (medium, info) in enumerate(zip(media, infos, strict=True))
    ]
    return processor.together(plans)


class _Heads(NamedTuple):
    """Read what media tell of themselves, until that is not wanted any more."""

    reading: Reading
    max_image_pixels: int
    cancellation: Cancellation | None

    def image(self, source: Source) -> ImageSize:
        head = self.reading.read(ImageHead(source, self.max_image_pixels), self.cancellation)
        return ImageSize(*msgspec.msgpack.decode(head, type=tuple[int, int]))

    def video(self, source: Source) -> VideoInfo:
        return msgspec.msgpack.decode(self.reading.read(VideoHead(source), self.cancellation), type=VideoInfo)


def _inspect(name: str, media: MediaInput, heads: _Heads) -> MediaInfo:
    if media.frames:
        return _frames_info(name, media, heads)
    with _refusing(name, media, heads):
        return heads.video(media.where) if media.kind == "video" else heads.image(media.where)


@contextmanager
def _refusing(name: str, media: MediaInput, heads: _Heads) -> Iterator[None]:
    """Have a medium that cannot be read be the request's error."""
    try:
        yield
    except flashcodec.DecodeError as error:
        size = isinstance(error, flashcodec.LimitError) and f"{heads.max_image_pixels} pixels" in error.reason
        hint = " (see --max-image-megapixels)" if size else ""
        raise RequestError(f"{fault(name, error)}{hint}", param=media.param) from error


def _frames_info(name: str, media: MediaInput, heads: _Heads) -> VideoInfo:
    """Return what the processor must know of a video that is images.

    Raises RequestError for one that is no image, or of another size than the first.
    """
    sizes = []
    for number, frame in enumerate(media.where.pieces(media.frames)):
        with _refusing(f"{name}, frame {number}", media, heads):
            sizes.append(heads.image(frame))
    width, height = sizes[0]
    for number, size in enumerate(sizes):
        if size != sizes[0]:
            told = f"{name}, frame {number}: {size[0]}x{size[1]} pixels, but frame 0 has {width}x{height}"
            raise RequestError(f"{told}: all must be of one size", param=media.param)
    times = [number / media.fps for number in range(len(sizes))]
    return VideoInfo(len(sizes), media.fps, len(sizes) / media.fps, width, height, times)


def _plan(processor: Processor, name: str, media: MediaInput, info: MediaInfo) -> MediaPlan:
    try:
        if isinstance(info, VideoInfo):
            return processor.plan_video(info, media.options)
        return processor.plan_image(*info, media.options)
    except PromptError as error:
        raise RequestError(f"{name}: {error}", param=error.param or media.param) from error
