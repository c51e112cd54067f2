"""Limit how much one source may ask for."""

from dataclasses import dataclass

from flashcodec import _core


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

    max_pixels: int = 8192 * 8192
    max_frames: int = 4_194_304
    max_source_bytes: int | None = None
    max_analysis_seconds: float | None = 60.0
    max_decode_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")

    def to_core(self) -> _core.Limits:
        limits = _core.Limits()
        limits.max_pixels = self.max_pixels
        limits.max_packets = min(self.max_frames, 2**31 - 1)
        limits.max_source_bytes = self.max_source_bytes or 2**63 - 1
        limits.max_analysis_seconds = self.max_analysis_seconds or float("inf")
        limits.max_decode_seconds = self.max_decode_seconds or float("inf")
        return limits
