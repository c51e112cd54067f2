"""Decode videos by FlashCodec: what it works on for which request, and what it gives back."""

from __future__ import annotations

import logging
import math
import os
import threading
from contextlib import suppress
from dataclasses import dataclass

import flashcodec
from unifiedserve.config import DecodeOn
from unifiedserve.errors import ConfigError
from unifiedserve.messages.wire import MediaSource
from unifiedserve.reading.work import decoding_work, opened
from unifiedserve.worker.vision.decoding_costs import DecodingCosts
from unifiedserve.worker.vision.medium import Medium
from unifiedserve.worker.vision.videos import DecoderOptions, RunningVideos, Take

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Video:
    """Track a video at work.

    It has the seconds of the cost model, and from when to when (monotonic) it was worked on.
    """

    medium: Medium
    told: float = 0.0
    began: float = math.inf
    ended: float = 0.0
    done: bool = False


class FlashCodecVideos:
    """Run all videos that FlashCodec's engines work on. A thread hands on what they decode."""

    def __init__(self, options: DecoderOptions, take: Take, learned: DecodingCosts) -> None:
        self._take = take
        self._learned = learned
        self._decode_on: DecodeOn = options.decode_on
        self._codec = _codec_for(options)
        self._videos: dict[int, _Video] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._collector = threading.Thread(target=self._collect_or_die, name="decoded")
        self._collector.start()

    @property
    def engines(self) -> int:
        """Return how many engines there are."""
        return self._codec.num_engines

    def begin(self, medium: Medium, source: MediaSource, running: RunningVideos) -> None:
        """Analyse a video and hand it to the engines. A request cancelled by then is left out.

        Raises as `flashcodec.analyse_bitstream` and `FlashCodec.add_decoding_request`.
        """
        bitstream = running.bitstreams.get(source.first_unit) or flashcodec.analyse_bitstream(opened(source.where))
        running.bitstreams[source.first_unit] = bitstream  # that parts which come later are decoded of, too
        frames = medium.plan.frames_of(medium.groups)
        video = _Video(medium)
        with self._lock:  # held until it is entered, so that no output comes before
            if not running.cancelled:
                request = self._codec.add_decoding_request(
                    bitstream,
                    frames,
                    medium.plan.layout,
                    priority=~running.priority,  # there the highest goes first; ~ keeps within 32 bits
                    turn=running.turn,
                    decode_on=self._decode_on,
                )
                self._videos[request] = video
                running.requests.add(request)
        with suppress(flashcodec.DecodeError):  # its decoder will say so
            video.told = decoding_work(bitstream, frames).seconds
            self._learn(video)

    def take_turn(self, running: RunningVideos) -> None:
        """Tell the engines a request's turn, which has changed."""
        with self._lock:
            requests = list(running.requests)
        for request in requests:
            self._codec.set_turn(request, running.turn)

    def cancel(self, running: RunningVideos) -> None:
        """Stop work on a request's videos; nothing that is still decoded of them is handed on."""
        with self._lock:
            running.cancelled = True
            requests = [request for request in running.requests if self._videos.pop(request, None)]
        for request in requests:
            self._codec.cancel(request)

    def close(self) -> None:
        """Stop all decoding and the thread."""
        self._closing.set()
        self._codec.close()
        self._collector.join()

    def _collect_or_die(self) -> None:
        """Collect, or end the worker. Without its collector the stage would hang; the supervisor replaces a worker."""
        try:
            while not self._closing.is_set():
                self._collect()
        except Exception:
            _log.exception("cannot take decoded frames")
            os._exit(1)

    def _collect(self) -> None:
        decoded = self._codec.get_decoding_output(timeout=0.5)
        if decoded is None:
            return
        with self._lock:
            video = self._videos.get(decoded.request)
        if video is not None:
            video.began, video.ended = min(video.began, decoded.began), max(video.ended, decoded.ended)
            video.done = decoded.done and decoded.error is None
            self._learn(video)
            self._take(video.medium, decoded)

    def _learn(self, video: _Video) -> None:
        """Learn what a video has cost, once it is done and the model has told."""
        with self._lock:
            if video.done and video.told:
                self._learned.video(video.told, video.ended - video.began)
                video.told = 0.0


def _codec_for(options: DecoderOptions) -> flashcodec.FlashCodec:
    """Return a codec into devices' memory, or into the host's if FlashCodec cannot.

    Raises ConfigError if only a GPU may decode, and cannot.
    """
    try:
        places = options.places
        return flashcodec.FlashCodec(options.threads, device=places if len(places) > 1 else places[0])
    except RuntimeError as error:
        if options.decode_on == "gpu":
            raise ConfigError(f"--decode-on gpu: {error}") from error
        _log.warning("videos are decoded on cores and copied to %s: %s", " and ".join(options.places), error)
        return flashcodec.FlashCodec(options.threads)
