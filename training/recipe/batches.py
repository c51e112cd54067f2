"""Batches of a step: a pure function of the seed and the step's number, made in a process of their own."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from training.recipe.clips import Clip, Source, coded, drawn
from training.recipe.labels import Labels
from training.recipe.prompts import Branch, Sequences, Writer
from training.world.language import LONG
from training.world.questions import Turn, conversation
from training.world.sampling import ASPECTS, STILL, Recipe, sample_scene

TRAINING, POOL, EXAMINATION = 0, 1, 2  # first parts of scenes' seeds: no scene is in two of them
Shape = tuple[int, int]  # a picture's aspect ratio
GROUPS = 64  # groups of frames, or images, in a batch
ROWS = 48  # rows of conversations in a batch, more or less
RATES = (5, 8, 10, 12, 15, 24, 25, 30)
FRAMES = (4, 6, 8, 8, 8, 10, 12, 16, 24)
LONG_FRAMES = (32, 48, 64, 96, 128, 128)
SPARSEST, LONGEST = 5.0, 600.0  # at most: seconds a frame in long videos, and seconds of a video
TOLD_IN_MINUTES = 0.7  # least share of the long videos
CODED = 0.15  # share of a batch's clips that come out of a file
POOL_START, POOL_GROWTH = 24, 0.02  # files at the first step, and more of them with each step


@dataclass(frozen=True)
class Lesson:
    """A stage of training: its scenes, the shares of still images and of long videos, and whether it asks."""

    recipe: Recipe
    stills: float
    long: float
    asks: bool = True


@dataclass(frozen=True)
class Batch:
    """Clips of one size. `clips` times `groups` times the cells of `grid` are visual tokens."""

    clips: int
    groups: int
    grid: tuple[int, int]
    rows: Tensor
    labels: dict[str, Tensor]
    sequences: dict[str, Tensor]
    kind: str
    turns: list[Turn]

    def to(self, device: str) -> "Batch":
        moved = {name: value.to(device) for name, value in self.sequences.items()}
        return replace(self, rows=self.rows.to(device), sequences=moved)


class Batches(Dataset[Batch]):
    """A map from a step's number to its batch; files of the pool are kept in `folder`."""

    def __init__(self, tokenizer: Tokenizer, lessons: "Lessons", seed: int, folder: Path, part: int = TRAINING) -> None:
        self._tokenizer, self._lessons = tokenizer.to_str(), lessons
        self._seed, self._folder, self._part = seed, folder, part

    def __getitem__(self, step: int) -> Batch:
        rng = np.random.default_rng((self._seed, self._part, step))
        lesson = self._lessons.at(step)
        kind = "image" if rng.random() < lesson.stills else "video"
        shape = ASPECTS[rng.integers(len(ASPECTS))]
        if kind == "image":
            clips = [self._still(lesson, shape, (step, i), rng) for i in range(GROUPS)]
        else:
            clips = self._videos(lesson, shape, step, rng)
        rows = 0 if not lesson.asks else 1 if kind == "image" else min(12, max(2, ROWS // len(clips)))
        conversations = [
            [self._writer.row(partial(conversation, clip.scene, rng)) for _ in range(rows)] for clip in clips
        ]
        return self._together(kind, clips, conversations)

    def _videos(self, lesson: Lesson, shape: Shape, step: int, rng: np.random.Generator) -> list[Clip]:
        long = rng.random() < lesson.long
        frames = int(rng.choice(LONG_FRAMES if long else FRAMES))
        count = max(2, GROUPS * (6 if long else 2) // frames)
        clips = []
        for i in range(count):
            rate = float(rng.choice(RATES))
            if long:
                shortest = LONG if rng.random() < TOLD_IN_MINUTES else frames / 2.2
                length = shortest, min(LONGEST, SPARSEST * frames)
            elif rng.random() < 0.7:  # what the rule of so many frames a second gives
                length = frames / 2, frames / 2 + 0.8
            else:  # one to three frames a second
                length = max(2.0, frames / 3), frames
            if not long and rng.random() < CODED:
                clips.append(self._coded(shape, frames, step, rng))
                continue
            recipe = Recipe(lesson.recipe.things, length)
            scene = sample_scene(recipe, (self._seed, self._part, step, i), shape[0] / shape[1])
            clips.append(drawn(scene, Source(*_size(shape, rng), max(rate, frames / scene.seconds + 1), frames)))
        return clips

    def _still(self, lesson: Lesson, shape: Shape, number: tuple[int, int], rng: np.random.Generator) -> Clip:
        recipe = Recipe(lesson.recipe.things, STILL.seconds)
        scene = sample_scene(recipe, (self._seed, self._part, *number), shape[0] / shape[1])
        return drawn(scene, Source(*_size(shape, rng), 1.0))

    def _coded(self, shape: Shape, frames: int, step: int, rng: np.random.Generator) -> Clip:
        number = int(rng.integers(POOL_START + int(step * POOL_GROWTH)))
        own = np.random.default_rng((self._seed, POOL, self._part, number, *shape))
        scene = sample_scene(Recipe(seconds=(3.0, 8.0)), (self._seed, POOL, self._part, number), shape[0] / shape[1])
        source = Source(*_size(shape, own), 8.0, frames)
        return coded(scene, source, str(own.choice(["h264", "hevc"])), int(own.integers(26, 38)), self._folder)

    @cached_property
    def _writer(self) -> Writer:
        return Writer(Tokenizer.from_str(self._tokenizer))

    def _together(self, kind: str, clips: list[Clip], conversations: list[list[list[Branch]]]) -> Batch:
        groups, grid = clips[0].groups, clips[0].grid
        seconds = [clip.seconds_per_group for clip in clips]
        sequences = self._writer.sequences(kind, groups, grid, seconds, conversations)
        return Batch(
            clips=len(clips),
            groups=groups,
            grid=grid,
            rows=torch.from_numpy(np.concatenate([clip.rows for clip in clips])),
            labels={field.name: _stacked(clips, field.name) for field in fields(Labels)},
            sequences={field.name: torch.from_numpy(getattr(sequences, field.name)) for field in fields(Sequences)},
            kind=kind,
            turns=[turn for rows in conversations for row in rows for branch in row for turn in branch.turns],
        )


@dataclass(frozen=True)
class Lessons:
    """A curriculum: at each of these fractions of `steps`, the next lesson begins."""

    steps: int
    begins: tuple[tuple[float, Lesson], ...]

    def at(self, step: int) -> Lesson:
        return [lesson for begin, lesson in self.begins if step >= begin * self.steps][-1]


def _size(shape: Shape, rng: np.random.Generator) -> tuple[int, int]:
    """Draw width and height of a source: even, of this aspect ratio, large enough to be shrunk to the same grid."""
    unit = 2 * round(float(rng.uniform(170, 260)) / (shape[0] * shape[1]) ** 0.5 / 2)
    return shape[0] * unit, shape[1] * unit


def _stacked(clips: list[Clip], name: str) -> Tensor:
    return torch.from_numpy(np.stack([getattr(clip.labels, name) for clip in clips]))


def in_background(batches: Batches, steps: range, workers: int = 1) -> Iterator[Batch]:
    """Yield the batches of these steps, in order, made ahead by `workers` processes (0: by this one)."""
    options: dict[str, Any] = {"num_workers": workers, "batch_size": None, "sampler": steps}
    if workers:
        options |= {"prefetch_factor": 3, "worker_init_fn": _modest}
    yield from DataLoader(batches, **options)


def _modest(worker: int) -> None:
    torch.set_num_threads(1)
