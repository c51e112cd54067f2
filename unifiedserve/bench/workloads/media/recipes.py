"""Describe an image or a video as a value. Its name says all of it, so that a file is made only once."""

from dataclasses import dataclass
from typing import Literal

Codec = Literal["h264", "hevc", "vp9"]

# FFmpeg's defaults, except for VP9's speed.
X264 = ("-c:v", "libx264")  # preset medium, CRF 23, 3 B-frames as a pyramid, GOPs of at most 250
X265 = ("-c:v", "libx265", "-x265-params", "log-level=none", "-tag:v", "hvc1")  # medium, CRF 28, open GOPs
VP9 = ("-c:v", "libvpx-vp9", "-crf", "32", "-b:v", "0", "-row-mt", "1", "-cpu-used", "4")  # alt-ref frames
ENCODERS: dict[Codec, tuple[str, ...]] = {"h264": X264, "hevc": X265, "vp9": VP9}


@dataclass(frozen=True)
class Format:
    """Set how a video is encoded, and its size in pixels, both even."""

    codec: Codec = "h264"
    width: int = 640
    height: int = 360
    rate: int = 25

    @property
    def name(self) -> str:
        return f"{self.codec}_{self.width}x{self.height}_{self.rate}fps"


@dataclass(frozen=True)
class Video:
    """Describe a video of `seconds`, or up to a fifth more. It is cut between packets.

    Its `number` and `seed` say what it shows, in any format; no two numbers show the same.
    """

    seconds: float
    number: int
    seed: int = 0
    format: Format = Format()

    @property
    def name(self) -> str:
        suffix = "webm" if self.format.codec == "vp9" else "mp4"
        return f"{self.format.name}/{self.seed}_{self.number:05}_{self.seconds:g}s.{suffix}"


@dataclass(frozen=True)
class Image:
    """Describe a photograph-like JPEG. No two numbers have the same content."""

    width: int
    height: int
    number: int
    seed: int = 0

    @property
    def name(self) -> str:
        return f"images/{self.seed}_{self.number:05}_{self.width}x{self.height}.jpg"


Recipe = Video | Image
