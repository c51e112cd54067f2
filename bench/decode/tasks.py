"""The tasks of the contestants, and their files."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from peers import ANALYSES, CONTESTANTS, ON_GPU, PATCHES, PATCHES_ON_GPU, SPLITS, WITH_CORES, Contestant
from videos import CLIPS, VIDEOS

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """One kind of work. `size` is that of the pictures handed out, None for the file's own."""

    name: str
    meaning: str
    kind: str = "frames"
    size: tuple[int, int] | None = (224, 224)
    concurrency: int = 1
    repeat: int = 1
    ours: str = "frames"  # the function that FlashCodec runs
    always: tuple[str, ...] = SPLITS  # peers that run in every round, however slow

    def indices(self, count: int, rate: float) -> Indices:
        """Return the frames asked for in a file of `count`, int64."""
        if self.name in ("every", "analysis"):
            return np.arange(count)
        if self.name == "fps1":
            return np.arange(0, count, rate).astype(np.int64)
        if self.name == "seeks16":
            starts = np.random.default_rng(16).integers(0, max(1, count - 4), 16)
            return np.asarray((starts[:, None] + np.arange(4)).clip(0, count - 1).ravel(), np.int64)
        frames = {"clips": 8, "latency": 4}.get(self.name, 64)
        return np.linspace(0, count - 1, min(frames, count)).astype(np.int64)

    def contestants(self, device: str) -> dict[str, Contestant]:
        """Return the contestants that take part, by name."""
        if device == "cuda":
            return PATCHES_ON_GPU if self.kind == "patches" else ON_GPU
        if self.kind == "patches":
            return PATCHES
        if self.kind == "analysis":
            return ANALYSES
        if self.ours == "snapped":
            return {name: CONTESTANTS[name] for name in ("FlashCodec", *SPLITS)}
        if self.concurrency > 1:
            return {name: contestant for name, contestant in CONTESTANTS.items() if name not in WITH_CORES}
        return CONTESTANTS


TASKS = {
    task.name: task
    for task in (
        Task("uniform64", "64 frames evenly spread over the file, 224x224", always=(*SPLITS, "TorchCodec", "OpenCV")),
        Task("fps1", "one frame a second, 224x224"),
        Task("seeks16", "16 times 4 frames in a row at random places, in random order, 224x224"),
        Task("every", "every frame at native size, in one array", size=None),
        Task(
            "clips",
            "100 files of 10 s, 8 frames of each, 224x224, 8 files at a time",
            concurrency=8,
            always=("TorchCodec", "PyAV"),
        ),
        Task("latency", "4 frames of a file of 2 s, 224x224; median of 15 calls", repeat=15),
        Task("patches", "64 frames to Qwen2.5-VL's normalised patches, 168x280", kind="patches", size=(168, 280)),
        Task("snap", "uniform64 for the peers; FlashCodec gives the nearest key frames", ours="snapped"),
        Task("analysis", "all frames found, none decoded; median of 20 calls", kind="analysis", repeat=20),
    )
}


@dataclass(frozen=True)
class Row:
    """A task on one file, or on the clips."""

    task: Task
    video: str

    @property
    def files(self) -> list[str]:
        return CLIPS if self.video == "clips" else [self.video]

    @property
    def title(self) -> str:
        return f"{self.task.name}, {self.video.split('.')[0]}"

    def indices(self, counts: list[int]) -> list[Indices]:
        rate = VIDEOS[self.files[0]].rate
        return [self.task.indices(count, rate) for count in counts]


LONG = "h264_720p_8min.mp4"
DEFAULT_ROWS = [
    Row(TASKS["uniform64"], LONG),
    Row(TASKS["snap"], LONG),
    Row(TASKS["seeks16"], LONG),
    Row(TASKS["patches"], LONG),
    Row(TASKS["every"], "h264_360p_3min.mp4"),
    Row(TASKS["clips"], "clips"),
    Row(TASKS["latency"], "short_360p_2s.mp4"),
    Row(TASKS["fps1"], LONG),
    Row(TASKS["analysis"], LONG),
]
GPU_ROWS = [
    Row(TASKS["uniform64"], LONG),
    Row(TASKS["uniform64"], "h264_1080p_1min.mp4"),
    Row(TASKS["patches"], LONG),
    Row(TASKS["every"], "h264_360p_3min.mp4"),
    Row(TASKS["clips"], "clips"),
    Row(TASKS["latency"], "short_360p_2s.mp4"),
    Row(TASKS["uniform64"], "hevc_720p_3min.mp4"),
]
OTHER_ROWS = [
    *(Row(TASKS["uniform64"], name) for name in VIDEOS if name not in (LONG, "short_360p_2s.mp4", *CLIPS)),
    *(Row(TASKS[task], "hevc_720p_3min.mp4") for task in ("fps1", "seeks16")),
    Row(TASKS["fps1"], "h264_360p_3min.mp4"),
    Row(TASKS["every"], "h264_4k_10s.mp4"),
]
