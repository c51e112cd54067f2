"""Define a reading process's jobs and answers. Results travel as memory beside the answer."""

import os
from typing import Any

import msgspec
from flashcodec.image import WHITE, Background
from flashcodec.layouts import Layout

import flashcodec
from unifiedserve.config import EngineConfig
from unifiedserve.messages.layouts import decode_layout
from unifiedserve.messages.media import Source
from unifiedserve.sandbox import code_paths

_LONGEST = 4096  # characters of a reason
_OWN_BYTES = 1 << 30  # of the libraries, and of the index of a video
_BYTES_A_PIXEL = 16  # of an image on its way: decoded, turned, resized


class ImageHead(msgspec.Struct, frozen=True, tag=True):
    """Request for the (width, height) of an image, upright."""

    source: Source
    max_pixels: int


class VideoHead(msgspec.Struct, frozen=True, tag=True):
    """Request for a VideoInfo."""

    source: Source


class VideoWork(msgspec.Struct, frozen=True, tag=True):
    """Request for the DecodingWork of a video's `frames`, little-endian int32."""

    source: Source
    frames: bytes


class ImagePixels(msgspec.Struct, frozen=True, tag=True):
    """Request for an image in a layout, as bytes; the background is seen through it."""

    source: Source
    layout: Layout
    max_pixels: int
    background: Background = WHITE


class Setup(msgspec.Struct, frozen=True):
    """Set up all reading processes: what they may read if they are confined, and their bounds.

    Of processor time `head_seconds` are for the head of an image, `seconds` and `megapixel_seconds` for each megapixel
    for its pixels, `index_seconds` for the index of a video, which what decoding takes is told by, too.
    """

    confined: bool
    readable: list[str]
    max_bytes: int
    head_seconds: float = 1.0  # a hundred times what ordinary ones take
    seconds: float = 5.0
    megapixel_seconds: float = 0.2
    index_seconds: float = 60.0

    @classmethod
    def of(cls, config: EngineConfig) -> "Setup":
        """Return that of a server with these options."""
        media = config.media.allowed_local_media_path
        readable = [*code_paths(), *([os.path.realpath(media)] if media else [])]
        return cls(
            config.machine.sandbox != "off", readable, _OWN_BYTES + config.media.max_image_pixels * _BYTES_A_PIXEL
        )

    def seconds_for(self, job: "Job", pixels: int = 0) -> float:
        """Return the processor time that a job may take, which decodes so many pixels."""
        match job:
            case ImageHead():
                return self.head_seconds
            case VideoHead() | VideoWork():
                return self.index_seconds
            case ImagePixels():
                return self.seconds + pixels / 1e6 * self.megapixel_seconds

    def bounds_of(self, job: "Job") -> str:
        """Return, in words, the processor time that a job may take."""
        more = f" and {self.megapixel_seconds:.3g} s a megapixel" if isinstance(job, ImagePixels) else ""
        return f"{self.seconds_for(job):.3g} s{more} of processor time"


class Done(msgspec.Struct, frozen=True, tag=True):
    """Answer with a result, whose memory travels beside it."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Answer without a result: an exception, by its class and what it was made from."""

    kind: str
    given: tuple[Any, ...]


Job = ImageHead | VideoHead | VideoWork | ImagePixels
Outcome = Done | Failed

_EXPECTED: dict[str, type[Exception]] = {
    error.__name__: error
    for error in (
        flashcodec.DecodeError,
        flashcodec.SourceError,
        flashcodec.UnsupportedError,
        flashcodec.NoVideoError,
        flashcodec.DamagedError,
        flashcodec.LimitError,
        OSError,
        ValueError,
        IndexError,
        MemoryError,
    )
}
_encoder = msgspec.msgpack.Encoder()
_jobs: msgspec.msgpack.Decoder[Job] = msgspec.msgpack.Decoder(Job, dec_hook=decode_layout)
_answers: msgspec.msgpack.Decoder[Outcome] = msgspec.msgpack.Decoder(Outcome)


def pack(message: Job | Outcome) -> bytes:
    return _encoder.encode(message)


def unpack_job(data: bytes) -> Job:
    return _jobs.decode(data)


def unpack_answer(data: bytes) -> Outcome:
    return _answers.decode(data)


def failure(error: Exception) -> Failed:
    """Return the answer that tells of an exception."""
    if isinstance(error, flashcodec.DecodeError):
        return Failed(type(error).__name__, (error.source, error.stream, error.reason[:_LONGEST], error.position))
    kind = next((name for name, each in _EXPECTED.items() if isinstance(error, each)), type(error).__name__)
    return Failed(kind, ((str(error) or type(error).__name__)[:_LONGEST],))


def exception(failed: Failed) -> Exception:
    """Return the exception that an answer tells of; a RuntimeError for what should not have happened."""
    if (kind := _EXPECTED.get(failed.kind)) is not None:
        return kind(*failed.given)
    return RuntimeError(f"{failed.kind}: {failed.given[0]}")
