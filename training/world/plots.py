"""The plots of a video: each makes one or two things with their paths and events, or None if it does not fit.

A thing that moves does so in one direction for as long as it is there; a collision turns it back.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from training.world.scene import HEADINGS, Event, Heading, Pace, Path, Thing

SLOW, FAST = (0.05, 0.10), (0.32, 0.50)  # side lengths of a square frame a second
MOVES = 0.18  # the least way that counts as moving
TIMED = 24.0  # seconds of video up to which things move at these paces; in longer ones as fast as the video is long
VECTORS: dict[Heading, tuple[int, int]] = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
TILT = math.radians(10)  # how far paths stray from their heading


@dataclass(frozen=True)
class Stage:
    """The stage of plots: a frame of `width` × `height` for `seconds`."""

    rng: np.random.Generator
    width: float
    height: float
    seconds: float

    def moment(self) -> float:
        """Draw a time at which something may happen."""
        return float(self.rng.uniform(0.1, 0.9)) * self.seconds

    def place(self, size: float) -> tuple[float, float]:
        """Draw a place where a thing is seen whole."""
        room = size / 2
        return float(self.rng.uniform(room, self.width - room)), float(self.rng.uniform(room, self.height - room))

    def speed(self) -> tuple[Pace | None, float]:
        if self.seconds > TIMED:
            return None, float(self.rng.uniform(1.5, 5.0)) / self.seconds
        if self.rng.random() < 0.5:
            return "slow", float(self.rng.uniform(*SLOW))
        return "fast", float(self.rng.uniform(*FAST))


Plot = Callable[[Stage, tuple[Thing, ...]], tuple[list[Thing], list[Event]] | None]
"""Takes things that rest nowhere yet; events count them from 0."""


def rest(stage: Stage, things: tuple[Thing, ...]) -> tuple[list[Thing], list[Event]]:
    return [_placed(stage, things[0])], []


def appear(stage: Stage, things: tuple[Thing, ...]) -> tuple[list[Thing], list[Event]]:
    moment = stage.moment()
    return [replace(_placed(stage, things[0]), begin=moment)], [Event(moment, "appear", 0)]


def disappear(stage: Stage, things: tuple[Thing, ...]) -> tuple[list[Thing], list[Event]]:
    moment = stage.moment()
    return [replace(_placed(stage, things[0]), end=moment)], [Event(moment, "disappear", 0)]


def visit(stage: Stage, things: tuple[Thing, ...]) -> tuple[list[Thing], list[Event]]:
    begin, end = sorted((stage.moment(), stage.moment()))
    thing = replace(_placed(stage, things[0]), begin=begin, end=end)
    return [thing], [Event(begin, "appear", 0), Event(end, "disappear", 0)]


def turn(stage: Stage, things: tuple[Thing, ...]) -> tuple[list[Thing], list[Event]] | None:
    """Let a thing take the colour of the second one."""
    if things[0].colour == things[1].colour:
        return None
    moment = stage.moment()
    return [replace(_placed(stage, things[0]), turns=(moment, things[1].colour))], [Event(moment, "turn", 0)]


def move(stage: Stage, things: tuple[Thing, ...]) -> tuple[list[Thing], list[Event]] | None:
    """Let a thing move straight on for the whole video; it may enter, leave or do both."""
    pace, speed = stage.speed()
    return _moving(stage, things[0], pace, speed, anchor=stage.moment())


def speed_up(stage: Stage, things: tuple[Thing, ...]) -> tuple[list[Thing], list[Event]] | None:
    if stage.seconds > TIMED:
        return None
    moment = stage.moment()
    slow, fast = float(stage.rng.uniform(*SLOW)), float(stage.rng.uniform(*FAST))
    heading, (dx, dy) = _course(stage)
    x, y = stage.place(things[0].size)
    times = (0.0, moment, stage.seconds)
    ways = (-slow * moment, 0.0, fast * (stage.seconds - moment))
    path = Path(times, tuple(x + dx * way for way in ways), tuple(y + dy * way for way in ways))
    if not _inside(stage, path.xs[0], path.ys[0], things[0].size / 2):
        return None
    thing = replace(things[0], path=path, heading=heading)
    return [thing], [Event(moment, "speed up", 0), *_crossings(stage, path)]


def collide(stage: Stage, things: tuple[Thing, ...]) -> tuple[list[Thing], list[Event]] | None:
    """Let the first thing run into the second one, which rests, and turn back: no doubt which one hits the other."""
    moment = stage.moment()
    speed = float(stage.rng.uniform(MOVES, 2 * MOVES)) / max(moment, stage.seconds - moment)
    _, (dx, dy) = _course(stage)
    gap = (things[0].size + things[1].size) / 2
    x, y = stage.width * stage.rng.uniform(0.35, 0.65), stage.height * stage.rng.uniform(0.35, 0.65)
    times = (0.0, moment, stage.seconds)
    ways = [-gap / 2 - speed * abs(seconds - moment) for seconds in times]
    run = Path(times, tuple(x + dx * way for way in ways), tuple(y + dy * way for way in ways))
    stand = Path((0.0,), (x + dx * gap / 2,), (y + dy * gap / 2,))
    made = [replace(thing, path=path) for thing, path in zip(things, (run, stand), strict=True)]
    for thing in made:
        if not all(_inside(stage, *point, thing.size / 2) for point in zip(thing.path.xs, thing.path.ys, strict=True)):
            return None
    return made, [Event(moment, "collide", 0, 1)]


def _placed(stage: Stage, thing: Thing) -> Thing:
    x, y = stage.place(thing.size)
    return replace(thing, path=Path((0.0,), (x,), (y,)))


def _moving(
    stage: Stage, thing: Thing, pace: Pace | None, speed: float, anchor: float
) -> tuple[list[Thing], list[Event]] | None:
    """Move a thing so that it passes a random place at the time `anchor`."""
    heading, (dx, dy) = _course(stage)
    x, y = stage.place(thing.size)
    times = (0.0, stage.seconds)
    ways = [speed * (seconds - anchor) for seconds in times]
    path = Path(times, tuple(x + dx * way for way in ways), tuple(y + dy * way for way in ways))
    if speed * stage.seconds < MOVES:
        return None
    return [replace(thing, path=path, heading=heading, pace=pace)], _crossings(stage, path)


def _course(stage: Stage) -> tuple[Heading, tuple[float, float]]:
    """Draw a heading, and a direction near it."""
    heading = HEADINGS[stage.rng.integers(len(HEADINGS))]
    (x, y), tilt = VECTORS[heading], float(stage.rng.uniform(-TILT, TILT))
    return heading, (x * math.cos(tilt) - y * math.sin(tilt), x * math.sin(tilt) + y * math.cos(tilt))


def _inside(stage: Stage, x: float, y: float, margin: float) -> bool:
    return margin <= x <= stage.width - margin and margin <= y <= stage.height - margin


def _crossings(stage: Stage, path: Path) -> list[Event]:
    """Return when the centre comes into the frame and when it leaves it."""
    times = np.linspace(0, stage.seconds, 501)
    x, y = path.at(times)
    inside = (x >= 0) & (x < stage.width) & (y >= 0) & (y < stage.height)
    changes = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    return [Event(float(times[i]), "enter" if inside[i] else "leave", 0) for i in changes]
