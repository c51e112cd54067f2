"""Define the interface of all that can decode videos for the vision stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from flashcodec.image import Background

import flashcodec
from unifiedserve.config import DecodeOn, VideoDecoderName
from unifiedserve.messages.wire import MediaSource
from unifiedserve.reading.readers import Cancellation
from unifiedserve.worker.vision.medium import Medium

Take = Callable[[Medium, "flashcodec.DecodingOutput"], None]


class DecoderOptions(NamedTuple):
    """Choose the decoder of videos, its threads (0: one a core), and its device.

    Images have `max_pixels` at most, and the `background` is seen through them. Decoded frames are put in one of the
    `places`, as FlashCodec's `device` has them.
    """

    name: VideoDecoderName
    threads: int
    decode_on: DecodeOn
    max_pixels: int
    background: Background
    places: tuple[str, ...]


@dataclass(slots=True, eq=False)
class RunningVideos:
    """Hold the media of one request while they are decoded.

    The lowest `priority` goes first, then the earliest `turn`.
    """

    priority: int = 0
    turn: float = 0.0  # monotonic seconds
    requests: set[int] = field(default_factory=set)  # by FlashCodec's numbers
    cancelled: bool = False
    images: Cancellation = field(default_factory=Cancellation)
    bitstreams: dict[int, flashcodec.Bitstream] = field(default_factory=dict)  # by the first units of media


class Videos(Protocol):
    """Run all videos that are being decoded. Threads of theirs hand on what comes out."""

    @property
    def engines(self) -> int:
        """Return how many decoders work at once."""

    def begin(self, medium: Medium, source: MediaSource, running: RunningVideos) -> None:
        """Begin to decode a video, unless its request is cancelled by then. Raises DecodeError if it is none."""

    def take_turn(self, running: RunningVideos) -> None:
        """Decode a request's videos when it is their turn, which has changed."""

    def cancel(self, running: RunningVideos) -> None:
        """Stop work on a request's videos; nothing that is still decoded of them is handed on."""

    def close(self) -> None:
        """Stop all decoding and its threads."""
