"""Limit how much one source may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashcodec import _core


MAX_PIXELS = 8192 * 8192
_MOST = 2**31 - 1  # that FFmpeg takes
_MOST_BYTES = 2**63 - 1


@dataclass(frozen=True)
class Limits:
    """Refuse a source over a limit with a LimitError. None: no limit.

    Attributes:
        max_pixels: of a picture.
        max_frames: of a video (packets, to be exact); a few bytes can claim billions.
        max_source_bytes: size of a source.
        max_analysis_seconds: wall time that the analysis of one source may take.
        max_decode_seconds: wall time that a decoding request may take, from its first segment on.

    Raises ValueError for a limit that is not positive.
    """

    max_pixels: int | None = MAX_PIXELS
    max_frames: int | None = 4_194_304
    max_source_bytes: int | None = None
    max_analysis_seconds: float | None = 60.0
    max_decode_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")

    def to_core(self) -> _core.Limits:
        from flashcodec import _core  # FFmpeg with it

        limits = _core.Limits()
        limits.max_pixels = min(self.max_pixels or _MOST, _MOST)
        limits.max_packets = min(self.max_frames or _MOST, _MOST)
        limits.max_source_bytes = min(self.max_source_bytes or _MOST_BYTES, _MOST_BYTES)
        limits.max_analysis_seconds = self.max_analysis_seconds or float("inf")
        limits.max_decode_seconds = self.max_decode_seconds or float("inf")
        return limits
