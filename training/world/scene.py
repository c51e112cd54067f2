"""The contents of a scene: things with shapes, colours and paths, and what happens to them.

The frame has the area 1: it is √aspect wide and 1/√aspect high; x grows to the right, y downwards. Times are seconds.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Shape = Literal["circle", "square", "triangle", "star", "cross", "ring"]
Colour = Literal["red", "orange", "yellow", "green", "blue", "purple", "pink", "white", "black"]
Heading = Literal["left", "right", "up", "down"]
Pace = Literal["slow", "fast"]
EventKind = Literal["appear", "disappear", "enter", "leave", "turn", "collide", "speed up"]

SHAPES: tuple[Shape, ...] = ("circle", "square", "triangle", "star", "cross", "ring")
COLOURS: tuple[Colour, ...] = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "white", "black")
HEADINGS: tuple[Heading, ...] = ("left", "right", "up", "down")
EVENT_KINDS: tuple[EventKind, ...] = ("appear", "disappear", "enter", "leave", "turn", "collide", "speed up")
SMALL, BIG = (0.21, 0.25), (0.32, 0.37)  # diameters: wide enough apart to be told from each other


@dataclass(frozen=True)
class Path:
    """A polyline in time: at `times[i]` the thing is at (`xs[i]`, `ys[i]`); it rests before and after."""

    times: tuple[float, ...]
    xs: tuple[float, ...]
    ys: tuple[float, ...]

    def at(self, seconds: float | Floats) -> tuple[Floats, Floats]:
        return np.asarray(np.interp(seconds, self.times, self.xs)), np.asarray(np.interp(seconds, self.times, self.ys))


@dataclass(frozen=True)
class Thing:
    """A thing that is there from `begin` to `end` (exclusive); `turns` is when it takes which other colour.

    `heading` and `pace` are its own for all its time, None where it has no single one; one that rests has neither.
    """

    shape: Shape
    colour: Colour
    size: float
    angle: float
    path: Path
    begin: float = -math.inf
    end: float = math.inf
    turns: tuple[float, Colour] | None = None
    heading: Heading | None = None
    pace: Pace | None = None

    @property
    def rests(self) -> bool:
        return len(self.path.times) == 1

    @property
    def big(self) -> bool:
        return self.size >= BIG[0]

    @property
    def colours(self) -> tuple[Colour, ...]:
        """Return all colours that the thing ever has."""
        return (self.colour, self.turns[1]) if self.turns else (self.colour,)

    def colour_at(self, seconds: float) -> Colour:
        return self.turns[1] if self.turns and seconds >= self.turns[0] else self.colour


@dataclass(frozen=True)
class Event:
    """An event that happens to `things[subject]`; in a collision, `other` is the other one."""

    seconds: float
    kind: EventKind
    subject: int
    other: int | None = None


@dataclass(frozen=True)
class Scene:
    """A video of `seconds`, or a still image if that is 0. `events` are in the order of time."""

    aspect: float
    seconds: float
    things: tuple[Thing, ...]
    events: tuple[Event, ...]
    look: int  # seed of the background and of the noise

    @property
    def width(self) -> float:
        return math.sqrt(self.aspect)

    @property
    def height(self) -> float:
        return 1 / self.width

    @property
    def still(self) -> bool:
        return self.seconds == 0

    def shows(self, thing: Thing, seconds: float | Floats) -> NDArray[np.bool_]:
        """Say at which of these times the thing is there with its centre within the frame."""
        x, y = thing.path.at(seconds)
        there = (thing.begin <= np.asarray(seconds)) & (np.asarray(seconds) < thing.end)
        return np.asarray(there & (x >= 0) & (x < self.width) & (y >= 0) & (y < self.height))

    def with_colour(self, colour: Colour) -> list[int]:
        """Return the things that ever have a colour."""
        return [i for i, thing in enumerate(self.things) if colour in thing.colours]

    def with_shape(self, shape: Shape) -> list[int]:
        return [i for i, thing in enumerate(self.things) if thing.shape == shape]

    def events_of(self, subject: int) -> list[Event]:
        return [event for event in self.events if subject in (event.subject, event.other)]


def in_order(events: Iterable[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda event: event.seconds))
