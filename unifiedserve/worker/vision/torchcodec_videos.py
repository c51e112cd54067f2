"""Videos by TorchCodec, one thread and one decoder each: to compare with, and for files that FlashCodec fails on."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

import flashcodec
from unifiedserve.messages.wire import MediaSource
from unifiedserve.worker.vision.medium import Medium, open_source
from unifiedserve.worker.vision.videos import RunningVideos, Take

_GROUPS = 4  # that are decoded in one call


class TorchCodecVideos:
    """Frames are those that FlashCodec would give; requests go in the order in which they come.

    Raises ImportError if the package torchcodec is not there.
    """

    def __init__(self, threads: int, take: Take) -> None:
        self._take = take
        self.engines = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="torchcodec")

    def begin(self, medium: Medium, source: MediaSource, running: RunningVideos) -> None:
        """Queue a video; whatever is wrong with it is handed on as an error."""
        self._pool.submit(self._guarded, medium, source, running)

    def cancel(self, running: RunningVideos) -> None:
        """Stop work on a request's videos after what is being decoded."""
        running.cancelled = True

    def close(self) -> None:
        """Stop all decoding and its threads."""
        self._pool.shutdown(cancel_futures=True)

    def _guarded(self, medium: Medium, source: MediaSource, running: RunningVideos) -> None:
        try:
            for output in self._decode(medium, source):
                if running.cancelled:
                    return
                self._take(medium, output)
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            failure = flashcodec.DamagedError(medium.name, None, f"TorchCodec: {reason}")
            if not running.cancelled:
                self._take(medium, flashcodec.DecodingOutput(0, 0, 0, 0, None, True, error=failure))

    def _decode(self, medium: Medium, source: MediaSource) -> Iterator[flashcodec.DecodingOutput]:
        decoder = _open(source)
        size, plan = medium.plan.group_size, medium.plan
        for first in range(0, len(medium.groups), _GROUPS):
            groups = medium.groups[first : first + _GROUPS]
            began = time.monotonic()
            frames = decoder.get_frames_at(list(plan.frames_of(groups))).data.numpy()
            for place in range(len(groups)):
                rgb = frames[place * size : (place + 1) * size]
                data = plan.layout.group_of(rgb)
                output = flashcodec.DecodingOutput(
                    0, (first + place) * size, len(rgb), first + place, data, False, 0, began, time.monotonic()
                )
                began = output.ended
                yield output


def _open(source: MediaSource) -> Any:
    """Return a decoder of TorchCodec's."""
    opened: Any = open_source(source)
    if not isinstance(opened, Path):
        opened = torch.from_numpy(np.frombuffer(opened, np.uint8))
    return import_module("torchcodec.decoders").VideoDecoder(
        opened, dimension_order="NHWC", num_ffmpeg_threads=1, seek_mode="exact"
    )
