"""Refuse videos whose frames take longer to decode than they may."""

import os
from collections.abc import Sequence

import flashcodec
from unifiedserve.engine.admission.media import MediaInfo, media_name
from unifiedserve.engine.admission.workload import Workload
from unifiedserve.errors import RequestError
from unifiedserve.messages.api import MediaInput
from unifiedserve.models.processor import MediaPlan, VideoInfo
from unifiedserve.reading.faults import fault

_MOST_A_PIXEL = 3e-9  # seconds of a core for a picture's pixel: more than any codec takes by FlashCodec's cost model
_MOST_A_BYTE = 4e-7  # the same for a coded byte


def check_decode_time(
    media: Sequence[MediaInput], infos: Sequence[MediaInfo], plans: Sequence[MediaPlan], workload: Workload, most: float
) -> None:
    """Raise RequestError for a video whose frames would take more than `most` core seconds. That is an estimate."""
    for number, (medium, info, plan) in enumerate(zip(media, infos, plans, strict=True)):
        if isinstance(info, VideoInfo) and not medium.frames and _whole(medium, info) > most:
            _check(media_name(number, medium), medium, info, plan, workload, most)


def _whole(medium: MediaInput, info: VideoInfo) -> float:
    """Return more seconds than the whole video takes, told without a look at its packets."""
    where = medium.where
    size = os.path.getsize(where.path) if where.path else where.size
    return info.num_frames * info.width * info.height * _MOST_A_PIXEL + size * _MOST_A_BYTE


def _check(name: str, medium: MediaInput, info: VideoInfo, plan: MediaPlan, workload: Workload, most: float) -> None:
    try:
        seconds = workload.seconds(medium, plan)
    except flashcodec.DecodeError as error:
        raise RequestError(fault(name, error), param=medium.param) from error
    if seconds > most:
        frames = f"{len(plan.frame_indices)} of its {info.num_frames} frames of {info.width}x{info.height}"
        raise RequestError(
            f"{name}: decoding {frames} takes about {seconds:.3g} s of one core, over the limit of {most:g} s "
            "(see --max-decode-seconds): ask for fewer frames",
            param=medium.param,
        )
