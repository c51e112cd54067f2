"""The bundled model's examination: questions about scenes that it was never trained on, as files."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unifiedserve.demo.training.batches import EXAMINATION
from unifiedserve.demo.training.clips import CODECS, Source, encode
from unifiedserve.demo.world.questions import ASKERS, Turn, ask
from unifiedserve.demo.world.sampling import ASPECTS, STILL, Recipe, sample_scene
from unifiedserve.demo.world.scene import Scene

SEED = 2**31  # no training run's: theirs are small
SHORT, LONG = Recipe(seconds=(3.0, 16.0)), Recipe(seconds=(120.0, 600.0))
STILLS, LONGS = 0.2, 0.1  # of the scenes
TOLERANCE = 0.1  # of the video's length, for times
TIME = re.compile(r"second (\d+)|minute (\d+):(\d+)")


@dataclass(frozen=True)
class Paper:
    """A file and questions about its scene."""

    scene: Scene
    file: Path
    turns: tuple[Turn, ...]


def papers(count: int, folder: Path, seed: int = 0) -> Iterator[Paper]:
    """`count` scenes, written into `folder` by different codecs, sizes, rates and qualities."""
    for number in range(count):
        rng = np.random.default_rng((SEED, EXAMINATION, seed, number))
        kind = rng.random()
        recipe = STILL if kind < STILLS else LONG if kind < STILLS + LONGS else SHORT
        width, height = ASPECTS[rng.integers(len(ASPECTS))]
        scene = sample_scene(recipe, (SEED, EXAMINATION, seed, number), width / height)
        unit = 2 * round(float(rng.uniform(200, 360)) / (width * height) ** 0.5 / 2)
        rate = float(rng.choice([4, 6] if recipe is LONG else [10, 15, 24, 25, 30]))
        codec = str(rng.choice(list(CODECS)))
        file = folder / f"{seed}-{number}.mp4"
        encode(scene, Source(width * unit, height * unit, rate), codec, int(rng.integers(24, 34)), file)
        asked = [ask(scene, rng, category) for category in ASKERS]
        yield Paper(scene, file, tuple(turn for turn in asked if turn is not None))


def is_right(scene: Scene, turn: Turn, answer: str) -> bool:
    """Exactly the answer; a time may be off by a tenth of the video."""
    said = TIME.search(answer)
    if turn.seconds is None or said is None:
        return answer.strip() == turn.answer
    seconds = int(said[1]) if said[1] else 60 * int(said[2]) + int(said[3])
    return abs(seconds - turn.seconds) <= TOLERANCE * scene.seconds


def row_of(scene: Scene, turn: Turn) -> str:
    """The row of the table: the category, with the hard cases by themselves."""
    if turn.category == "count":
        return "count of four" if " four " in turn.answer else "count up to three"
    return f"{turn.category}, minutes long" if scene.seconds >= LONG.seconds[0] else turn.category
