"""Random scenes: a seed gives the same scene for ever."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from training.world import plots
from training.world.scene import BIG, COLOURS, SHAPES, SMALL, Event, Path, Scene, Thing, in_order

ATTEMPTS = 400
SPACING = 0.12  # least share of the video's length between two events and from either end,
SPACING_SECONDS = 0.6  # and least seconds: two frames a second tell them apart
CLEARANCE = 0.02  # least distance between the edges of two things that do not collide
SEEN = 0.12  # least share of the video's length that a thing is there,
SEEN_SECONDS = 1.0  # and least seconds
ASPECTS = ((1, 1), (1, 1), (4, 3), (4, 3), (16, 9), (16, 9), (3, 4), (9, 16))  # width and height

LIVELY: tuple[tuple[plots.Plot, float], ...] = (
    (plots.rest, 1.5),
    (plots.move, 6.0),
    (plots.appear, 1.5),
    (plots.disappear, 1.0),
    (plots.visit, 0.7),
    (plots.turn, 1.5),
    (plots.speed_up, 3.0),
    (plots.collide, 3.0),
)


@dataclass(frozen=True)
class Recipe:
    """A recipe of scenes: how many things, and for how many seconds (0: a still image)."""

    things: tuple[int, int] = (1, 4)
    seconds: tuple[float, float] = (2.0, 12.0)


STILL = Recipe(seconds=(0.0, 0.0))


def sample_scene(recipe: Recipe, seed: int | Sequence[int], aspect: float | None = None) -> Scene:
    """Draw a scene of this recipe; `aspect` is width by height, drawn if not given."""
    rng = np.random.default_rng(seed)
    if aspect is None:
        width, height = ASPECTS[rng.integers(len(ASPECTS))]
        aspect = width / height
    low, high = recipe.seconds
    seconds = round(float(np.exp(rng.uniform(math.log(low), math.log(high)))), 1) if high else 0.0
    wanted = int(rng.integers(recipe.things[0], recipe.things[1] + 1))
    for attempt in range(ATTEMPTS):
        if (scene := _attempt(rng, aspect, seconds, wanted, calm=attempt > ATTEMPTS // 2)) is not None:
            return scene
    raise RuntimeError(f"no room for {wanted} things")  # smaller numbers of things always fit


def _attempt(rng: np.random.Generator, aspect: float, seconds: float, wanted: int, calm: bool) -> Scene | None:
    """Try once; the plots are drawn first, then what does not fit is thrown away. `calm` scenes fit nearly always."""
    scene = Scene(aspect, seconds, (), (), look=int(rng.integers(2**31)))
    stage = plots.Stage(rng, scene.width, scene.height, seconds)
    for _ in range(40):
        if len(scene.things) == wanted:
            return scene
        grown = _grown(scene, stage, wanted, calm)
        if grown is not None and _sound(grown, len(scene.things)):
            scene = grown
    return None


def _grown(scene: Scene, stage: plots.Stage, wanted: int, calm: bool) -> Scene | None:
    plot = plots.rest if scene.still else _choose(stage.rng, calm)
    made = plot(stage, (_blank(stage.rng), _blank(stage.rng)))
    if made is None or len(scene.things) + len(made[0]) > wanted:
        return None
    first = len(scene.things)
    moved = [
        Event(event.seconds, event.kind, first + event.subject, None if event.other is None else first + event.other)
        for event in made[1]
    ]
    return replace(scene, things=(*scene.things, *made[0]), events=in_order([*scene.events, *moved]))


def _choose(rng: np.random.Generator, calm: bool) -> plots.Plot:
    if calm:
        return plots.rest
    weights = np.array([weight for _, weight in LIVELY])
    return LIVELY[rng.choice(len(LIVELY), p=weights / weights.sum())][0]


def _blank(rng: np.random.Generator) -> Thing:
    """Make a thing that is nowhere yet."""
    low, high = BIG if rng.random() < 0.5 else SMALL
    return Thing(
        shape=SHAPES[rng.integers(len(SHAPES))],
        colour=COLOURS[rng.integers(len(COLOURS))],
        size=float(rng.uniform(low, high)),
        angle=float(rng.uniform(-0.25, 0.25)),
        path=Path((0.0,), (0.0,), (0.0,)),
    )


def _sound(scene: Scene, known: int) -> bool:
    """Say whether the things from number `known` on can be told from the others, seen, and kept apart."""
    return _distinct(scene.things) and _spaced(scene) and _seen(scene, known) and _apart(scene, known)


def _distinct(things: Sequence[Thing]) -> bool:
    """Say whether no two things ever look the same."""
    looks = [(thing.shape, colour) for thing in things for colour in thing.colours]
    return len(set(looks)) == len(looks)


def _spaced(scene: Scene) -> bool:
    times = [0.0, *(event.seconds for event in scene.events), scene.seconds]
    return not scene.events or bool(min(np.diff(times)) >= max(SPACING * scene.seconds, SPACING_SECONDS))


def _seen(scene: Scene, known: int) -> bool:
    if scene.still:
        return True
    times = np.linspace(0, scene.seconds, 100, endpoint=False)
    least = max(SEEN, SEEN_SECONDS / scene.seconds)
    return all(scene.shows(thing, times).mean() >= least for thing in scene.things[known:])


def _apart(scene: Scene, known: int) -> bool:
    times = np.linspace(0, scene.seconds, 1 if scene.still else 241)
    colliding = {(event.subject, event.other) for event in scene.events if event.kind == "collide"}
    for j in range(known, len(scene.things)):
        for i in range(j):
            one, other = scene.things[i], scene.things[j]
            (x, y), (u, v) = one.path.at(times), other.path.at(times)
            both = (times >= max(one.begin, other.begin)) & (times < min(one.end, other.end))
            least = (one.size + other.size) / 2 + (CLEARANCE if (i, j) not in colliding else -0.01)
            if np.any(both & (np.hypot(x - u, y - v) < least)):
                return False
    return True
