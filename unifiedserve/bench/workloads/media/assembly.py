"""Cut videos from the footage by stream copy. An hour of video takes seconds, with the bitrate and GOPs of real ones.

Each video is another order of the shots, so that its bytes and its frames differ from those of all others: caches by
digest, of files or of decoded frames, never hit. A copy with another title alone would deceive only the former, and
needs as much room on the disk.
"""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from unifiedserve.bench.arrivals.seeds import stream
from unifiedserve.bench.workloads.media import ffmpeg, footage
from unifiedserve.bench.workloads.media.recipes import Video


def order(video: Video) -> Iterator[int]:
    """Yield shots without end: all of them in one order, then in others.

    They follow each other at a stride, modulo their prime number. So no two of `SHOTS` * (`SHOTS` - 1) consecutive
    videos of a seed begin with the same two shots, and a video of 16 seconds has two; no shot follows itself.
    """
    names = stream(video.seed, "shots").permutation(footage.SHOTS).tolist()
    turn, first = divmod(video.number, footage.SHOTS)
    for lap in itertools.count(turn):
        stride = 1 + lap % (footage.SHOTS - 1)
        yield from (names[(first + step * stride) % footage.SHOTS] for step in range(footage.SHOTS))


def assemble(video: Video, folder: Path) -> None:
    """Write a video's file of the shots of its format, which must be there."""
    path = folder / video.name
    listing = path.with_name(f".{os.getpid()}.{path.name}.txt")  # others may make the same video at the same time
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        listing.write_text("".join(f"file {_quoted(shot)}\n" for shot in _shots(video, folder)))
        pictures = ["-f", "concat", "-safe", "0", "-i", str(listing)]
        sound = ["-stream_loop", "-1", "-i", str(footage.sound_path(folder, video.format).resolve())]
        copied = ["-map", "0:v", "-map", "1:a", "-c", "copy", "-t", f"{video.seconds:g}"]
        ffmpeg.run([*pictures, *sound, *copied, "-metadata", f"title={video.name}"], path)
    finally:
        listing.unlink(missing_ok=True)


def _quoted(path: Path) -> str:
    """Return a path as FFmpeg's lists have it."""
    escaped = str(path.resolve()).replace("'", "'\\''")
    return f"'{escaped}'"


def _shots(video: Video, folder: Path) -> Iterator[Path]:
    left = video.seconds
    frames = footage.lengths(video.format.rate)
    for shot in order(video):
        yield footage.shot_path(folder, video.format, shot)
        left -= frames[shot] / video.format.rate
        if left <= 0:
            return
