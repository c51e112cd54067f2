"""Clips: the frames that a processor would take of a scene's video, as rows of patches, with their labels."""

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import flashcodec
from training.recipe.checkpoint import SIDE, VIDEO_RULES
from training.recipe.labels import Labels, labels
from training.world.rendering import Image, Renderer
from training.world.scene import Scene
from unifiedserve.messages.media import MediaOptions, VideoInfo
from unifiedserve.models.families.qwen2_5_vl.rules import MediaRules, frame_size, sample_frames
from unifiedserve.models.processor_defaults import QWEN2_VIDEOS
from unifiedserve.models.processor_rules import raw_rules

RULES = MediaRules.read(raw_rules("", VIDEO_RULES, QWEN2_VIDEOS))
PATCH = SIDE // 2
CODECS = {
    "h264": ("-c:v", "libx264", "-preset", "veryfast"),
    "hevc": ("-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=none:pools=1"),
}


@dataclass(frozen=True)
class Source:
    """A video file to be: its size, its rate and how many frames of it a request asks for (None: the rule's)."""

    width: int
    height: int
    fps: float
    wanted: int | None = None

    def info(self, scene: Scene) -> VideoInfo:
        count = max(1, round(scene.seconds * self.fps))
        return VideoInfo(count, self.fps, count / self.fps, self.width, self.height)


@dataclass(frozen=True)
class Clip:
    """A clip's `rows`, uint8 [groups * patches, 1176] as the encoder reads them; `grid` is in visual tokens."""

    scene: Scene
    rows: NDArray[np.uint8]
    grid: tuple[int, int]
    seconds_per_group: float
    labels: Labels

    @property
    def groups(self) -> int:
        return len(self.labels.shape)


def drawn(scene: Scene, source: Source) -> Clip:
    """Draw a clip straight from the renderer, at the size that the processor would resize to."""
    taken = plan(scene, source)
    renderer = Renderer(scene, taken.height, taken.width)
    pictures = {seconds: renderer.frame(seconds) for seconds in np.unique(taken.times).tolist()}
    return _clip(scene, taken, np.stack([pictures[seconds] for seconds in taken.times.ravel().tolist()]))


def coded(scene: Scene, source: Source, codec: str, crf: int, folder: Path) -> Clip:
    """Draw a clip by way of a video file."""
    file = folder / f"{scene.look}-{source.width}x{source.height}-{codec}-{crf}.mp4"
    if not file.exists():
        with tempfile.TemporaryDirectory(dir=folder) as own:  # others may draw the same one at the same time
            part = Path(own, file.name)
            encode(scene, source, codec, crf, part)
            part.rename(file)
    taken = plan(scene, source)
    size = taken.height, taken.width
    return _clip(scene, taken, flashcodec.sample(file, indices=taken.indices, size=size, num_threads=1).data)


def encode(scene: Scene, source: Source, codec: str, crf: int, file: Path) -> None:
    """Write the scene as an MP4 file at constant quality `crf` (lower is better)."""
    info = source.info(scene)
    command = ["ffmpeg", "-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", f"{source.width}x{source.height}", "-r", str(source.fps), "-i", "-", "-threads", "1"]
    command += [*CODECS[codec], "-crf", str(crf), "-pix_fmt", "yuv420p", str(file)]
    renderer = Renderer(scene, source.height, source.width)
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        for number in range(info.num_frames):
            process.stdin.write(renderer.frame(number / source.fps).tobytes())
        process.stdin.close()
    if process.returncode:
        raise RuntimeError(f"ffmpeg could not write {file}")


class Taken(NamedTuple):
    """The frames taken of a source: their numbers, times [groups, 2] and size, the seconds between groups."""

    indices: tuple[int, ...]
    times: NDArray[np.float64]
    height: int
    width: int
    interval: float


def plan(scene: Scene, source: Source) -> Taken:
    """Choose frames by the processor's rules; of a still scene one picture, seen twice."""
    if scene.still:
        height, width = frame_size(RULES, source.height, source.width, 1, MediaOptions())
        return Taken((0,), np.zeros((1, 2)), height, width, 0.0)
    info, options = source.info(scene), MediaOptions(num_frames=source.wanted)
    indices = sample_frames(RULES, info, options)
    height, width = frame_size(RULES, source.height, source.width, len(indices), options)
    interval = 2 * info.num_frames / source.fps / len(indices)
    return Taken(indices, np.array(indices).reshape(-1, 2) / source.fps, height, width, interval)


def patches(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Cut into rows [groups * patches, 1176] the frames [2 * groups, height, width, 3], in the order of Qwen2-VL."""
    count, height, width, _ = frames.shape
    shape = (count // 2, 2, height // SIDE, 2, PATCH, width // SIDE, 2, PATCH, 3)
    cut = frames.reshape(shape).transpose(0, 2, 5, 3, 6, 8, 1, 4, 7)
    return np.ascontiguousarray(cut).reshape(-1, 3 * 2 * PATCH * PATCH)


def _clip(scene: Scene, taken: Taken, frames: Image) -> Clip:
    rows, columns = taken.height // SIDE, taken.width // SIDE
    return Clip(scene, patches(frames), (rows, columns), taken.interval, labels(scene, taken.times, rows, columns))
