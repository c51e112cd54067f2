"""Derive what the model sees of a medium from its plan."""

from unifiedserve.config import EngineConfig
from unifiedserve.engine.admission.buffers import medium_pages
from unifiedserve.engine.admission.media import MediaInfo
from unifiedserve.messages.api import MediaInput
from unifiedserve.messages.media import DecodingWork, MediaPlan, VideoInfo
from unifiedserve.messages.seen import Packets, SeenMedium, pictures_of


def seen(
    config: EngineConfig, medium: MediaInput, info: MediaInfo, plan: MediaPlan, decoding: DecodingWork | None
) -> SeenMedium:
    """Return what clients are told of a medium; `decoding` is what it takes, where that is known."""
    return SeenMedium(
        kind=plan.kind,
        param=medium.param,
        width=info.width,
        height=info.height,
        frames=max(1, len(plan.frame_indices)),
        indices=list(plan.frame_indices),
        seconds=_seconds(plan, info),
        pictures=pictures_of(plan.layout),
        tokens=plan.tokens,
        pages=medium_pages(config, plan),
        packets=None if decoding is None else Packets(decoding.packets, decoding.total, decoding.seconds),
    )


def _seconds(plan: MediaPlan, info: MediaInfo) -> list[float]:
    """Return the seconds from the video's beginning at which the frames are shown; none for an image."""
    if not isinstance(info, VideoInfo):
        return []
    times = info.pts_seconds
    return [round(times[frame] - times[0], 3) for frame in plan.frame_indices]
