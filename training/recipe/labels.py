"""The labels of a clip's visual tokens: targets of heads that are thrown away after training.

A cell is the part of the picture that a visual token stands for, a group the two frames. Labels are [groups, cells].
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.world.language import LONG
from training.world.sampling import SPACING
from training.world.scene import COLOURS, EVENT_KINDS, HEADINGS, SHAPES, Event, Scene

Numbers = NDArray[np.int64]
NOTHING = -1
SECONDS = 62  # classes of times told in seconds; those told in tens of seconds follow
SHAPE_CLASSES, COLOUR_CLASSES = len(SHAPES) + 1, len(COLOURS)
EVENT_CLASSES = len(EVENT_KINDS) + 2  # nothing, there from the beginning, and the kinds
TIME_CLASSES = 2 * SECONDS
MINUTE_CLASSES, TEN_CLASSES = 11, 6
ALIKE_CLASSES = 4
HAPPENING_CLASSES = int(1 / SPACING)  # as many as fit into a video
HEADING_CLASSES = len(HEADINGS) + 1


@dataclass(frozen=True)
class Labels:
    """Labels of a clip: `shape` is 0 where no thing has its centre, `colour`, `big` and `frames` are NOTHING there.

    `frames` says in which of the two frames it is: both, the first, the second. `place` is its centre, from 0 to 1 of
    the picture, `within` the same from the middle of the cell in cells, `motion` its way in the group, `heading` which
    way it always goes (0: it rests; NOTHING also where it has no single one). Of the group before, `was` is the colour
    of what had its centre here then, `before` the colour that this thing had then (both 0 for nothing, else from 1 on).
    `event` is what happened here since. `time` is the group's class, for all cells. `thing` and `happening` are the
    numbers of the thing and of the event among the scene's, or NOTHING; `hit_shape` and `hit_colour` tell what is hit,
    in the classes of `shape` and `colour`, NOTHING elsewhere. `minute` and `ten` are the group's time as told in long
    videos, NOTHING in others. `same_shape` and `same_colour` count the others like this one in the group.
    """

    shape: Numbers
    colour: Numbers
    big: Numbers
    frames: Numbers
    place: NDArray[np.float32]
    within: NDArray[np.float32]
    motion: NDArray[np.float32]
    heading: Numbers
    was: Numbers
    before: Numbers
    event: Numbers
    time: Numbers
    thing: Numbers
    happening: Numbers
    hit_shape: Numbers
    hit_colour: Numbers
    minute: Numbers
    ten: Numbers
    same_shape: Numbers
    same_colour: Numbers


def labels(scene: Scene, times: NDArray[np.float64], rows: int, columns: int) -> Labels:
    """Label frames at `times` [groups, 2], over `rows` × `columns` cells."""
    groups, cells = len(times), rows * columns
    told = time_classes(times[:, 0], scene.seconds)
    in_tens = told >= SECONDS
    made = Labels(
        shape=np.zeros((groups, cells), np.int64),
        colour=np.full((groups, cells), NOTHING),
        big=np.full((groups, cells), NOTHING),
        frames=np.full((groups, cells), NOTHING),
        place=np.zeros((groups, cells, 2), np.float32),
        within=np.zeros((groups, cells, 2), np.float32),
        motion=np.zeros((groups, cells, 2), np.float32),
        heading=np.full((groups, cells), NOTHING),
        was=np.zeros((groups, cells), np.int64),
        before=np.full((groups, cells), NOTHING),
        event=np.zeros((groups, cells), np.int64),
        time=_for_all(told, cells),
        thing=np.full((groups, cells), NOTHING),
        happening=np.full((groups, cells), NOTHING),
        hit_shape=np.full((groups, cells), NOTHING),
        hit_colour=np.full((groups, cells), NOTHING),
        minute=_for_all(np.where(in_tens, (told - SECONDS) // 6, NOTHING), cells),
        ten=_for_all(np.where(in_tens, (told - SECONDS) % 6, NOTHING), cells),
        same_shape=np.full((groups, cells), NOTHING),
        same_colour=np.full((groups, cells), NOTHING),
    )
    scale = np.array([columns / scene.width, rows / scene.height])
    for number, thing in enumerate(scene.things):
        shown = scene.shows(thing, times)  # [groups, 2]
        points = np.stack(thing.path.at(times), axis=-1)  # [groups, 2, xy]
        weight = shown[..., None] / np.maximum(1, shown.sum(1))[:, None, None]
        centre = (points * weight).sum(1) * scale
        known = 0
        for group in np.flatnonzero(shown.any(1)):
            cell = _cell(centre[group], rows, columns)
            made.thing[group, cell] = number
            made.shape[group, cell] = 1 + SHAPES.index(thing.shape)
            last = times[group, 1 if shown[group, 1] else 0]
            made.colour[group, cell] = COLOURS.index(thing.colour_at(float(last)))
            made.before[group, cell] = known if group and shown[group - 1].any() else 0
            known = made.colour[group, cell] + 1
            made.big[group, cell] = int(thing.big)
            made.frames[group, cell] = 0 if shown[group].all() else 1 + int(shown[group, 1])
            made.place[group, cell] = centre[group] / (columns, rows)
            made.within[group, cell] = centre[group] % 1 - 0.5
            made.motion[group, cell] = (points[group, 1] - points[group, 0]) * scale * shown[group].all()
            if thing.rests or thing.heading:
                made.heading[group, cell] = 1 + HEADINGS.index(thing.heading) if thing.heading else 0
            if group == 0 and not _begins(scene, number, times[0, 1]):
                made.event[group, cell] = 1
    made.was[1:] = made.colour[:-1] + 1
    for group, cell in np.argwhere(made.thing >= 0):
        made.same_shape[group, cell] = (made.shape[group] == made.shape[group, cell]).sum() - 1
        made.same_colour[group, cell] = (made.colour[group] == made.colour[group, cell]).sum() - 1
    for number, event in enumerate(scene.events):
        place = _first_seen(scene, event, times, rows, columns)
        if place is not None:
            made.event[place] = 2 + EVENT_KINDS.index(event.kind)
            made.happening[place] = number
            if event.other is not None:
                other = scene.things[event.other]
                made.hit_shape[place] = 1 + SHAPES.index(other.shape)
                made.hit_colour[place] = COLOURS.index(other.colour_at(event.seconds))
    return made


def _for_all(values: Numbers, cells: int) -> Numbers:
    return np.repeat(values[:, None], cells, axis=1)


def time_classes(seconds: NDArray[np.float64], length: float) -> Numbers:
    """Return the class of the words for a time in a video of this length."""
    spoken = np.round(seconds) if length < LONG else SECONDS + np.round(seconds / 10)
    return np.clip(spoken, 0, TIME_CLASSES - 1).astype(np.int64)


def _begins(scene: Scene, thing: int, until: float) -> bool:
    return any(e.seconds <= until and e.kind in ("appear", "enter") for e in scene.events_of(thing))


def _first_seen(
    scene: Scene, event: Event, times: NDArray[np.float64], rows: int, columns: int
) -> tuple[int, int] | None:
    """Return the first group with a frame from after the event, and the cell where the thing is or was last."""
    after = np.flatnonzero(times[:, 1] >= event.seconds)
    if not after.size:
        return None
    group = int(after[0])
    gone = event.kind in ("disappear", "leave")
    x, y = scene.things[event.subject].path.at(event.seconds if gone else float(times[group, 1]))
    return group, _cell(np.array([float(x) * columns / scene.width, float(y) * rows / scene.height]), rows, columns)


def _cell(point: NDArray[np.float64], rows: int, columns: int) -> int:
    """Return the number of the cell that holds a point given in cells."""
    column, row = np.clip(point, 0, (columns - 1, rows - 1)).astype(int)
    return int(row * columns + column)
