"""The videos that the decoders are measured on, made with realistic content and the encoders' own defaults.

python bench/decode/videos.py                    # all of them, 15 to 30 minutes once on two cores
python bench/decode/videos.py h264_720p_8min     # one of them
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from unifiedserve.bench.workloads.media import ffmpeg
from unifiedserve.bench.workloads.media.recipes import VP9, X264, X265
from unifiedserve.bench.workloads.media.scenes import Source, camera, screen
from unifiedserve.errors import ConfigError

DEFAULT_FOLDER = Path("~/.cache/flashcodec-bench").expanduser()

AV1 = ("-c:v", "libsvtav1", "-crf", "35", "-preset", "8")
PHONE = ("-c:v", "libx264", "-preset", "veryfast", "-bf", "0", "-g", "30", "-b:v", "16M")


@dataclass(frozen=True)
class Video:
    """One file: its size in pixels, its length and how it is encoded."""

    name: str
    height: int
    width: int
    seconds: int
    encoder: tuple[str, ...] = X264
    rate: int = 25
    source: Source = camera
    seed: int = 0

    @property
    def count(self) -> int:
        return self.seconds * self.rate

    def frames(self) -> Iterator[bytes]:
        return self.source(self.height, self.width, self.count, self.seed, self.rate)


VIDEOS = {
    video.name: video
    for video in (
        Video("h264_720p_8min.mp4", 720, 1280, 480, seed=1),
        Video("h264_360p_3min.mp4", 360, 640, 180, seed=2),
        Video("short_360p_2s.mp4", 360, 640, 2, seed=3),
        Video("h264_1080p_1min.mp4", 1080, 1920, 60, seed=4),
        Video("hevc_720p_3min.mp4", 720, 1280, 180, X265, seed=5),
        Video("vp9_720p_1min.webm", 720, 1280, 60, VP9, seed=6),
        Video("av1_720p_1min.mp4", 720, 1280, 60, AV1, seed=7),
        Video("h264_1080p_gop30_30s.mp4", 1080, 1920, 30, PHONE, rate=30, seed=8),
        Video("screen_720p_1min.mp4", 720, 1280, 60, source=screen, seed=9),
        *(Video(f"clips/clip_{number:03}.mp4", 360, 640, 10, seed=100 + number) for number in range(100)),
        Video("h264_4k_10s.mp4", 2160, 3840, 10, seed=10),
    )
}
CLIPS = [name for name in VIDEOS if name.startswith("clips/")]


def tiny(video: Video) -> Video:
    """Return the same kind of file at a sixteenth of the area, at most 8 seconds of it: for a smoke run."""
    encoder = (*video.encoder, "-cpu-used", "8") if video.encoder == VP9 else video.encoder
    height, width = video.height // 8 * 2, video.width // 8 * 2
    return replace(video, height=height, width=width, seconds=min(8, video.seconds), encoder=encoder)


def encode(video: Video, path: Path, progress: Progress) -> None:
    """Draw and encode one file, with a sound track as real ones have; it appears under its name once complete."""
    picture = f"-f rawvideo -pix_fmt yuv420p -s {video.width}x{video.height} -r {video.rate} -i -".split()
    sound = f"-f lavfi -t {video.seconds} -i anoisesrc=c=pink:a=0.05:r=48000".split()
    codec = ["-c:a", "libopus" if path.suffix == ".webm" else "aac"]
    task = progress.add_task(video.name, total=video.count)
    arguments = [*picture, *sound, *video.encoder, "-pix_fmt", "yuv420p", *codec]
    try:
        ffmpeg.pipe(arguments, path, video.frames(), lambda: progress.advance(task))
    except ConfigError as error:
        raise SystemExit(str(error)) from None
    finally:
        progress.remove_task(task)


def ensure(names: list[str], folder: Path, console: Console, quick: bool = False) -> dict[str, Path]:
    """Return the files of these names, made if missing; a failure ends the program with a message."""
    paths = {name: folder / ("tiny" if quick else "") / name for name in names}
    missing = [name for name in names if not paths[name].exists()]
    with Progress(console=console, transient=True) as progress:
        total = progress.add_task("videos", total=len(missing))
        for name in missing:
            encode(tiny(VIDEOS[name]) if quick else VIDEOS[name], paths[name], progress)
            progress.advance(total)
            note_ready(folder)
    return paths


def note_ready(folder: Path) -> None:
    """List the complete files in READY, for whoever waits for one of them."""
    ready = [name for name in VIDEOS if (folder / name).exists()]
    partial = folder / f".READY.{os.getpid()}"
    partial.write_text("".join(f"{name}\n" for name in ready))
    partial.replace(folder / "READY")


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Beginnings of file names; default: all")] = None,
    videos: Annotated[Path, typer.Option(help="Folder that keeps the files")] = DEFAULT_FOLDER,
) -> None:
    """Make the videos that are not there yet."""
    wanted = [name for name in VIDEOS if names is None or name.startswith(tuple(names))]
    if not wanted:
        raise typer.BadParameter(f"no video begins so; there are {', '.join(n for n in VIDEOS if n not in CLIPS)}")
    ensure(wanted, videos, Console(stderr=True))


if __name__ == "__main__":
    typer.run(main)
