"""Render and encode the scenes that videos are cut from, once for each format."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from unifiedserve.bench.workloads.media import ffmpeg, scenes
from unifiedserve.bench.workloads.media.recipes import ENCODERS, Format

SHOTS = 53  # a prime number: see assembly.py
_SEED = 20  # of the footage, whatever a workload's seed: all share the files
_SOUND = 60  # seconds


def lengths(rate: int) -> list[int]:
    """Return the frames of each shot: 2 to 8 seconds, as between the cuts of real videos."""
    seconds = np.random.default_rng(_SEED).gamma(2.5, 2.0, SHOTS)
    return [int(rate * length) for length in np.clip(seconds, 2, 8)]


def shot_path(folder: Path, form: Format, shot: int) -> Path:
    return folder / "footage" / form.name / f"shot_{shot:02}.mp4"


def sound_path(folder: Path, form: Format) -> Path:
    return folder / "footage" / f"sound.{'webm' if form.codec == 'vp9' else 'm4a'}"


def missing(folder: Path, form: Format) -> list[int]:
    """Return the shots that are not there yet."""
    return [shot for shot in range(SHOTS) if not shot_path(folder, form, shot).exists()]


def render(folder: Path, form: Format, shot: int, shown: Callable[[], object]) -> None:
    """Render and encode a shot; `shown` is called after each frame."""
    frames = scenes.shot(form.height, form.width, lengths(form.rate)[shot], _SEED + shot)
    raw = f"-f rawvideo -pix_fmt yuv420p -s {form.width}x{form.height} -r {form.rate} -i -".split()
    ffmpeg.pipe([*raw, *ENCODERS[form.codec], "-pix_fmt", "yuv420p"], shot_path(folder, form, shot), frames, shown)


def render_sound(folder: Path, form: Format) -> None:
    """Make the sound track of a format's videos, if it is not there. Real ones have one, too."""
    path = sound_path(folder, form)
    codec = "libopus" if path.suffix == ".webm" else "aac"
    if not path.exists():
        source = f"-f lavfi -t {_SOUND} -i anoisesrc=c=pink:a=0.05:r=48000".split()
        ffmpeg.run([*source, "-c:a", codec, "-b:a", "64k"], path)
