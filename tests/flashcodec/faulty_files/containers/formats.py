"""The containers by name: what FFmpeg calls each, and its reader and writer."""

from collections.abc import Callable
from typing import NamedTuple

from faulty_files.containers import avi, flv, ivf, mkv, mp4, ts
from faulty_files.recording import Recording


class Format(NamedTuple):
    """`ffmpeg` writes what `read` reads.

    Attributes:
        ffmpeg: its name for FFmpeg's muxers.
        suffix: of its files.
        gaps: whether packets may have no times.
    """

    ffmpeg: str
    suffix: str
    read: Callable[[bytes], Recording]
    write: Callable[[Recording], bytes]
    gaps: bool = False


FORMATS = {
    "mp4": Format("mp4", "mp4", mp4.read, mp4.write),
    "mov": Format("mov", "mov", mp4.read, mp4.write),
    "fragments": Format("mp4", "mp4", mp4.read, mp4.write_fragments),
    "mkv": Format("matroska", "mkv", mkv.read, mkv.write),
    "avi": Format("avi", "avi", avi.read, avi.write),
    "flv": Format("flv", "flv", flv.read, flv.write),
    "ivf": Format("ivf", "ivf", ivf.read, ivf.write),
    "ts": Format("mpegts", "ts", ts.read, ts.write, gaps=True),
    "raw": Format("mpegts", "bin", ts.read, ts.write_bare, gaps=True),
}
