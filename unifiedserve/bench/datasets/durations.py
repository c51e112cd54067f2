"""Measure videos whose annotations do not tell their lengths."""

from collections.abc import Callable, Iterable
from functools import cache

import msgspec

import flashcodec
from unifiedserve.bench.datasets.sample import Sample
from unifiedserve.bench.requests import Medium
from unifiedserve.errors import ConfigError


def with_durations(samples: Iterable[Sample]) -> list[Sample]:
    """Return the samples with the lengths of all their videos: FlashCodec reads the index of each file that needs it.

    Raises ConfigError for a file that is no video.
    """
    length = cache(_seconds)  # many questions are about one video
    return [
        msgspec.structs.replace(sample, media=tuple(_timed(medium, length) for medium in sample.media))
        for sample in samples
    ]


def _timed(medium: Medium, length: Callable[[str], float]) -> Medium:
    if medium.kind == "image" or medium.seconds:
        return medium
    return msgspec.structs.replace(medium, seconds=length(medium.path))


def _seconds(path: str) -> float:
    try:
        return flashcodec.analyse_bitstream(path).metadata.duration_seconds
    except (flashcodec.DecodeError, OSError) as error:
        raise ConfigError(f"{path}: its length is unknown: {error}") from error
