"""Keep what was rendered in a folder. Files that are there are not made again."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from unifiedserve.bench.workloads.media import assembly, ffmpeg, footage
from unifiedserve.bench.workloads.media.photographs import photograph
from unifiedserve.bench.workloads.media.recipes import ENCODERS, Format, Image, Recipe, Video
from unifiedserve.errors import ConfigError

DEFAULT_FOLDER = Path("~/.cache/unifiedserve-bench/media").expanduser()


def make(recipes: Iterable[Recipe], folder: Path, console: Console) -> None:
    """Make the files `folder / recipe.name` that are not there, with a progress bar.

    The scenes of a format are rendered first, once: about a minute for H.264 of 640x360 on two cores, some minutes for
    HEVC and VP9. Raises ConfigError without an `ffmpeg` that has the encoders, or where nothing can be written.
    """
    try:
        _make(recipes, folder, console)
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror or error}: give another folder with --media-dir") from error


def _make(recipes: Iterable[Recipe], folder: Path, console: Console) -> None:
    wanted = [recipe for recipe in dict.fromkeys(recipes) if not (folder / recipe.name).exists()]
    videos = [recipe for recipe in wanted if isinstance(recipe, Video)]
    images = [recipe for recipe in wanted if isinstance(recipe, Image)]
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for form in dict.fromkeys(video.format for video in videos):
            _make_footage(form, folder, progress)
        _check_room(videos, folder)
        for video in progress.track(videos, description="videos") if videos else ():
            assembly.assemble(video, folder)
        for image in progress.track(images, description="images") if images else ():
            photograph(image, folder)


def _make_footage(form: Format, folder: Path, progress: Progress) -> None:
    """Render the shots and the sound of a format, as far as they are missing."""
    shots = footage.missing(folder, form)
    ffmpeg.require([ENCODERS[form.codec][1], "libopus" if form.codec == "vp9" else "aac"])
    footage.render_sound(folder, form)
    frames = footage.lengths(form.rate)
    task = progress.add_task(f"scenes {form.name}", total=sum(frames[shot] for shot in shots))
    for shot in shots:
        footage.render(folder, form, shot, lambda: progress.advance(task))
    progress.remove_task(task)


def _check_room(videos: Sequence[Video], folder: Path) -> None:
    """Raise ConfigError if the videos, at the footage's bitrate, do not fit on the disk."""
    needed = sum(video.seconds * _bytes_a_second(video.format, folder) for video in videos)
    free = shutil.disk_usage(folder).free if videos else 0
    if needed > free:
        raise ConfigError(
            f"{folder}: {len(videos)} videos take {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free: "
            "choose another folder, fewer videos or smaller ones"
        )


def _bytes_a_second(form: Format, folder: Path) -> float:
    size = sum(footage.shot_path(folder, form, shot).stat().st_size for shot in range(footage.SHOTS))
    return size / (sum(footage.lengths(form.rate)) / form.rate) + 8_000  # and the sound's
