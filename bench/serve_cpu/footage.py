"""The videos and images of the benchmark: camera-like scenes with grain, each file another scene, made once."""

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

sys.path.append(str(Path(__file__).parents[1] / "decode"))

from videos import Video, encode  # type: ignore[import-not-found]

VIDEOS = [Video(f"scene_{number}.mp4", 360, 640, 60, seed=200 + number) for number in range(7)]
IMAGES = 9


@dataclass(frozen=True)
class Media:
    videos: list[Path]  # 640x360, 25 frames a second, a minute each
    images: list[Path]  # 640x360 JPEG


def ensure(folder: Path, console: Console, quick: bool) -> Media:
    """Return the files, made in `folder` if missing; `quick` ones are small and two seconds long."""
    folder = folder / "quick" if quick else folder
    videos = [replace(video, height=180, width=320, seconds=2) for video in VIDEOS] if quick else VIDEOS
    with Progress(console=console, transient=True) as progress:
        for video in progress.track([v for v in videos if not (folder / v.name).exists()], description="videos"):
            encode(video, folder / video.name, progress)
    paths = [folder / video.name for video in videos]
    return Media(paths, [still(number, paths) for number in range(IMAGES)])


def still(number: int, videos: list[Path]) -> Path:
    """Make an image of a frame of the videos."""
    source = videos[number % len(videos)]
    path = source.with_name(f"still_{number}.jpg")
    if not path.exists():
        second = number // len(videos)
        cut = ["-ss", str(second), "-i", str(source), "-frames:v", "1", "-q:v", "3", str(path)]
        subprocess.run(["ffmpeg", "-v", "error", "-y", *cut], check=True)
    return path
