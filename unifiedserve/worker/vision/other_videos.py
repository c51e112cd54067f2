"""Decode videos by another decoder than FlashCodec, one thread and one decoder each.

It serves to compare with, and for files that FlashCodec fails on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import flashcodec
from unifiedserve.messages.wire import MediaSource
from unifiedserve.worker.vision.medium import Medium
from unifiedserve.worker.vision.turn_pool import TurnPool
from unifiedserve.worker.vision.videos import RunningVideos, Take

Frames = npt.NDArray[np.uint8]
Read = Callable[[list[int]], Frames]  # frames by number, in any order, repeats allowed: [n, height, width, 3]

_GROUPS = 4  # that are decoded in one call


class OtherDecoder(NamedTuple):
    """Describe a package that decodes: `open` returns a reader of a source's frames, or raises whatever it does."""

    name: str
    open: Callable[[MediaSource], Read]


class OtherVideos:
    """Give the frames that FlashCodec would give. The lowest priority goes first, then turns, then arrival."""

    def __init__(self, decoder: OtherDecoder, threads: int, take: Take) -> None:
        self._decoder = decoder
        self._take = take
        self.engines = threads
        self._pool = TurnPool(threads, decoder.name)

    def begin(self, medium: Medium, source: MediaSource, running: RunningVideos) -> None:
        """Queue a video; whatever is wrong with it is handed on as an error."""
        self._pool.submit(running, self._decode, medium, source, running)

    def take_turn(self, running: RunningVideos) -> None:
        """Do nothing: the threads look at the turns when one of them is idle."""

    def cancel(self, running: RunningVideos) -> None:
        """Stop work on a request's videos after what is being decoded."""
        running.cancelled = True

    def close(self) -> None:
        """Stop all decoding and its threads."""
        self._pool.close()

    def _decode(self, medium: Medium, source: MediaSource, running: RunningVideos) -> None:
        try:
            for output in decoded_groups(medium, self._decoder.open(source)):
                if running.cancelled:
                    return
                self._take(medium, output)
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            failure = flashcodec.DamagedError(medium.name, None, f"{self._decoder.name}: {reason}")
            if not running.cancelled:
                self._take(medium, flashcodec.DecodingOutput(0, 0, 0, 0, None, True, error=failure))


def decoded_groups(medium: Medium, read: Read, at_once: int = _GROUPS) -> Iterator[flashcodec.DecodingOutput]:
    """Yield the wanted groups of a video's frames in the model's layout; `at_once` of them are read together."""
    size, plan = medium.plan.group_size, medium.plan
    for first in range(0, len(medium.groups), at_once):
        groups = medium.groups[first : first + at_once]
        began = time.monotonic()
        frames = read([int(frame) for frame in plan.frames_of(groups)])
        for place in range(len(groups)):
            rgb = frames[place * size : (place + 1) * size]
            data = plan.layout.group_of(rgb)
            output = flashcodec.DecodingOutput(
                0, (first + place) * size, len(rgb), first + place, data, False, 0, began, time.monotonic()
            )
            began = output.ended
            yield output
