"""Draw the sample clips that come with the package, and write down what to ask about them.

python -m training.samples DIRECTORY
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
from PIL import Image

from training.recipe.clips import Source, encode
from training.world.questions import ask
from training.world.rendering import Renderer
from training.world.sampling import STILL, Recipe, sample_scene
from training.world.scene import Scene

SEED = 2**31 + 1  # scenes of this seed are neither trained on nor examined
QUALITY = 30  # x264's crf


@dataclass(frozen=True)
class Sample:
    """A file that shows the first scene of `recipe` that is `fit`, with a question of each of `categories`."""

    name: str
    recipe: Recipe
    source: Source
    categories: tuple[str, ...]
    fit: Callable[[Scene], bool]


def _kinds(scene: Scene) -> set[str]:
    return {event.kind for event in scene.events}


SAMPLES = (
    Sample(
        "shapes-events.mp4",
        Recipe((3, 3), (9.0, 11.0)),
        Source(480, 360, 25.0),
        ("extreme", "order", "time", "new colour", "description"),
        lambda scene: len(scene.events) >= 3 and {"turn", "appear"} <= _kinds(scene),
    ),
    Sample(
        "shapes-motion.mp4",
        Recipe((3, 3), (7.0, 8.0)),
        Source(640, 360, 30.0),
        ("direction", "speed", "colour", "happening", "description"),
        lambda scene: sum(thing.pace is not None for thing in scene.things) >= 2,
    ),
    Sample(
        "shapes-minutes.mp4",
        Recipe((3, 3), (170.0, 250.0)),
        Source(224, 168, 2.0),
        ("time", "order", "happening", "description"),
        lambda scene: len(scene.events) >= 3,
    ),
    Sample(
        "shapes.jpg",
        STILL,
        Source(480, 480, 1.0),
        ("colour", "quadrant", "count", "beside", "description"),
        lambda scene: len(scene.things) == 4,
    ),
)


def draw(sample: Sample, directory: Path) -> list[str]:
    """Write the file and return the questions."""
    source, file = sample.source, directory / sample.name
    scenes = (sample_scene(sample.recipe, (SEED, number), source.width / source.height) for number in count())
    scene = next(scene for scene in scenes if sample.fit(scene))
    if scene.still:
        Image.fromarray(Renderer(scene, source.height, source.width).frame()).save(file, quality=85)
    else:
        encode(scene, source, "h264", QUALITY, file)
    rng = np.random.default_rng(SEED)
    turns = [ask(scene, rng, category) for category in sample.categories]
    return [turn.question for turn in turns if turn is not None]


def main() -> None:
    """Draw all of them into a directory."""
    parser = argparse.ArgumentParser(prog="python -m training.samples", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args().directory
    questions = {sample.name: draw(sample, directory) for sample in SAMPLES}
    questions["telescope.mp4"] = ["Is there a red circle?", "How many objects are there?"]
    (directory / "questions.json").write_text(json.dumps(questions, indent=2) + "\n")


if __name__ == "__main__":
    main()
