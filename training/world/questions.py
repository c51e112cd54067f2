"""Questions about a scene with their answers. A question is asked only where the scene leaves no doubt.

Each asker draws what the answer shall be first and then a fact that makes it so, so that the question alone tells
nothing; about one question in eight is about a thing that is not there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from training.world import language
from training.world.language import UNKNOWN, WORDINGS, a, asked, clause, name, sentence
from training.world.scene import COLOURS, SHAPES, Event, Scene, Thing

ABSENT = 0.12  # share of the questions about a thing that is not there
MARGIN = 0.1  # distance from the middle lines within which a thing is in no quadrant
APART = 0.22  # distance, sideways or up and down, from which on a thing is clearly beside another
FOLLOWS = 0.35  # share of the turns that another one about the same thing follows
HASTY = 0.15  # share of the conversations typed without capitals and full stops

Item = TypeVar("Item")
Rng = np.random.Generator


@dataclass(frozen=True)
class Mention:
    """A mention: words of a question that mean a thing, or one of the scene's events and its thing."""

    words: str
    thing: int
    event: int | None = None


@dataclass(frozen=True)
class Turn:
    """A question and its answer.

    `about` is the thing that "it" means from now on, `event` that of the scene which makes the answer so, `seconds` the
    time asked for.
    """

    category: str
    question: str
    answer: str
    about: int | None = None
    event: int | None = None
    mentions: tuple[Mention, ...] = ()
    seconds: float | None = None


Asker = Callable[[Scene, Rng], Turn | None]


def conversation(scene: Scene, rng: Rng) -> list[Turn]:
    """Hold one to three turns: a question, and perhaps others about the same thing, which they call "it"."""
    turns = [_first(scene, rng)]
    while len(turns) < 3 and turns[-1].about is not None and rng.random() < FOLLOWS:
        taken = {turn.category for turn in turns}
        follow = _follow(scene, rng, turns[-1].about)
        if follow is None or follow.category in taken:
            break
        turns.append(follow)
    return [replace(turn, question=_hasty(turn.question)) for turn in turns] if rng.random() < HASTY else turns


def _hasty(question: str) -> str:
    return question.rstrip("?.").lower()


def ask(scene: Scene, rng: Rng, category: str) -> Turn | None:
    """Ask a question of this category; None if the scene has none."""
    return ASKERS[category](scene, rng)


def _first(scene: Scene, rng: Rng) -> Turn:
    names, weights = list(ASKERS), np.array([WEIGHTS.get(category, 1.0) for category in ASKERS])
    for index in rng.choice(len(names), size=200, p=weights / weights.sum()):
        if (turn := ask(scene, rng, names[index])) is not None:
            return turn
    raise RuntimeError("every scene has things to count")


def _follow(scene: Scene, rng: Rng, subject: int) -> Turn | None:
    askers = (_quadrant_of, _direction_of, _speed_of, _size_of)
    return askers[rng.integers(len(askers))](scene, rng, subject, "it")


def _pick(rng: Rng, items: Sequence[Item]) -> Item:
    return items[int(rng.integers(len(items)))]


def _turn(
    category: str,
    rng: Rng,
    answer: str,
    about: int | None = None,
    event: int | None = None,
    wording: str | None = None,
    mentions: tuple[Mention, ...] | None = None,
    **words: Any,
) -> Turn:
    question = _pick(rng, WORDINGS[wording or category]).format(**words)
    if mentions is None:
        mentions = () if about is None or "x" not in words else (Mention(words["x"], about, event),)
    return Turn(category, question, answer, about, event, mentions)


def _reference(scene: Scene, rng: Rng, subject: int) -> str:
    """Return a thing's name, or less where that is enough to tell it from the others."""
    thing = scene.things[subject]
    if thing.turns is None and scene.with_colour(thing.colour) == [subject] and rng.random() < 0.2:
        return f"the {thing.colour} {_pick(rng, ('object', 'thing', 'one'))}"
    if scene.with_shape(thing.shape) == [subject] and rng.random() < 0.3:
        return f"the {thing.shape}"
    return f"the {name(thing)}"


def _absent_name(scene: Scene, rng: Rng) -> str:
    """Make a name that no thing has; half of the time it shares a colour or a shape with what is there."""
    there = {(colour, thing.shape) for thing in scene.things for colour in thing.colours}
    near = rng.random() < 0.5
    while True:
        thing = _pick(rng, scene.things)
        colour, shape = _pick(rng, COLOURS), _pick(rng, SHAPES)
        if near:
            colour, shape = (colour, thing.shape) if rng.random() < 0.5 else (thing.colour, shape)
        if (colour, shape) not in there:
            return f"{colour} {shape}"


def _absent(category: str, scene: Scene, rng: Rng) -> Turn | None:
    """Ask, now and then, a question of the category about what is not there."""
    if rng.random() >= ABSENT:
        return None
    return _turn(category, rng, UNKNOWN, x=f"the {_absent_name(scene, rng)}")


def _alone(scene: Scene, alike: Callable[[Thing], list[int]]) -> list[int]:
    """Return things that keep their colour and are like no other one."""
    return [i for i, thing in enumerate(scene.things) if alike(thing) == [i] and thing.turns is None]


def _colour(scene: Scene, rng: Rng) -> Turn | None:
    missing = [shape for shape in SHAPES if not scene.with_shape(shape)]
    if missing and rng.random() < ABSENT:
        return _turn("colour", rng, UNKNOWN, x=f"the {_pick(rng, missing)}")
    fitting = _alone(scene, lambda thing: scene.with_shape(thing.shape))
    if not fitting:
        return None
    subject = _pick(rng, fitting)
    thing = scene.things[subject]
    return _turn("colour", rng, f"The {thing.shape} is {thing.colour}.", subject, x=f"the {thing.shape}")


def _shape(scene: Scene, rng: Rng) -> Turn | None:
    missing = [colour for colour in COLOURS if not scene.with_colour(colour)]
    noun = _pick(rng, ("object", "thing", "one"))
    if missing and rng.random() < ABSENT:
        return _turn("shape", rng, UNKNOWN, x=f"the {_pick(rng, missing)} {noun}")
    fitting = _alone(scene, lambda thing: scene.with_colour(thing.colour))
    if not fitting:
        return None
    subject = _pick(rng, fitting)
    thing = scene.things[subject]
    return _turn("shape", rng, f"It is {a(thing.shape)}.", subject, x=f"the {thing.colour} {noun}")


def _size(scene: Scene, rng: Rng) -> Turn | None:
    subject = int(rng.integers(len(scene.things)))
    return _absent("size", scene, rng) or _size_of(scene, rng, subject, _reference(scene, rng, subject))


def _size_of(scene: Scene, rng: Rng, subject: int, words: str) -> Turn:
    return _turn("size", rng, f"It is {language.size(scene.things[subject])}.", subject, x=words)


def _count(scene: Scene, rng: Rng) -> Turn | None:
    return _turn("count", rng, language.counted(len(scene.things), "object", "objects"))


def _count_of(scene: Scene, rng: Rng) -> Turn | None:
    """Ask for the number of a shape or a colour, which is drawn before what is counted."""
    options: list[tuple[int, str, str]] = []
    options += [(len(scene.with_shape(shape)), shape, language.plural(shape)) for shape in SHAPES]
    options += [
        (len(scene.with_colour(colour)), f"{colour} object", f"{colour} objects")
        for colour in COLOURS
        if all(thing.turns is None or colour not in thing.colours for thing in scene.things)
    ]
    number = _pick(rng, sorted({option[0] for option in options}))
    number, one, many = _pick(rng, [option for option in options if option[0] == number])
    return _turn("count", rng, language.counted(number, one, many), wording="count of", x=many)


def _quadrant(scene: Scene, rng: Rng) -> Turn | None:
    fitting = [i for i in range(len(scene.things)) if _in_quadrant(scene, i)]
    if not fitting:
        return None
    subject = _pick(rng, fitting)
    return _absent("quadrant", scene, rng) or _quadrant_of(scene, rng, subject, _reference(scene, rng, subject))


def _quadrant_of(scene: Scene, rng: Rng, subject: int, words: str) -> Turn | None:
    if not _in_quadrant(scene, subject):
        return None
    path = scene.things[subject].path
    return _turn("quadrant", rng, f"It is {language.quadrant(scene, path.xs[0], path.ys[0])}.", subject, x=words)


def _in_quadrant(scene: Scene, subject: int) -> bool:
    """Say whether the thing rests in a quadrant, clearly."""
    thing = scene.things[subject]
    x, y = thing.path.xs[0], thing.path.ys[0]
    return thing.rests and min(abs(x - scene.width / 2), abs(y - scene.height / 2)) >= MARGIN


def _beside(scene: Scene, rng: Rng) -> Turn | None:
    resting = [i for i, thing in enumerate(scene.things) if thing.rests]
    if len(resting) < 2:
        return None
    one, other = (int(i) for i in rng.choice(resting, 2, replace=False))
    first, second = scene.things[one], scene.things[other]
    away = first.path.xs[0] - second.path.xs[0]
    if abs(away) < APART:
        return None
    side = _pick(rng, ("left", "right"))
    truth = (away < 0) == (side == "left")
    x, y = f"the {name(first)}", f"the {name(second)}"
    mentions = (Mention(x, one), Mention(y, other))
    return _turn("beside", rng, "Yes." if truth else "No.", one, mentions=mentions, x=x, y=y, side=side)


def _direction(scene: Scene, rng: Rng) -> Turn | None:
    resting = rng.random() < 0.2
    fitting = [i for i, thing in enumerate(scene.things) if (thing.rests if resting else thing.heading is not None)]
    if scene.still or not fitting:
        return None
    subject = _pick(rng, fitting)
    return _absent("direction", scene, rng) or _direction_of(scene, rng, subject, _reference(scene, rng, subject))


def _direction_of(scene: Scene, rng: Rng, subject: int, words: str) -> Turn | None:
    thing = scene.things[subject]
    if scene.still or not (thing.rests or thing.heading):
        return None
    if thing.rests and words == "it" and rng.random() < 0.8:  # else most answers would be that it rests
        return None
    answer = "It does not move." if thing.heading is None else f"It moves {language.MOVES[thing.heading]}."
    return _turn("direction", rng, answer, subject, x=words)


def _speed(scene: Scene, rng: Rng) -> Turn | None:
    fitting = [i for i, thing in enumerate(scene.things) if thing.pace is not None]
    if not fitting:
        return None
    subject = _pick(rng, fitting)
    return _absent("speed", scene, rng) or _speed_of(scene, rng, subject, _reference(scene, rng, subject))


def _speed_of(scene: Scene, rng: Rng, subject: int, words: str) -> Turn | None:
    thing = scene.things[subject]
    if thing.pace is None:
        return None
    return _turn("speed", rng, f"It moves {'slowly' if thing.pace == 'slow' else 'quickly'}.", subject, x=words)


def _extreme(scene: Scene, rng: Rng) -> Turn | None:
    """Ask what happens first, or last."""
    if not scene.events:
        return None
    which = _pick(rng, ("first", "last"))
    number = 0 if which == "first" else len(scene.events) - 1
    event = scene.events[number]
    answer = sentence(clause(scene, event, f"the {name(scene.things[event.subject])}"))
    return _turn("order", rng, answer, event.subject, number, wording=which)


def _order(scene: Scene, rng: Rng) -> Turn | None:
    if len(scene.events) < 2:
        return None
    one, other = (int(i) for i in sorted(rng.choice(len(scene.events), 2, replace=False)))
    said = [clause(scene, scene.events[i], f"the {name(scene.things[scene.events[i].subject])}") for i in (one, other)]
    first, second = (said[0], said[1]) if rng.random() < 0.5 else (said[1], said[0])
    mentions = tuple(Mention(words, scene.events[i].subject, i) for words, i in zip(said, (one, other), strict=True))
    subject, answer = scene.events[one].subject, sentence(said[0])
    return _turn("order", rng, answer, subject, one, wording="order", mentions=mentions, a=first, b=second)


def _time(scene: Scene, rng: Rng) -> Turn | None:
    wording = "minute" if scene.seconds >= language.LONG else "time"
    if scene.still or not scene.events:
        return None
    if rng.random() < ABSENT:
        verb = _pick(rng, ("appear", "disappear", "come in", "leave"))
        return _turn("time", rng, UNKNOWN, wording=wording, does=f"does the {_absent_name(scene, rng)} {verb}")
    event = _pick(rng, scene.events)
    if sum(other.kind == event.kind and other.subject == event.subject for other in scene.events) > 1:
        return None
    does, number = asked(scene, event, f"the {name(scene.things[event.subject])}"), scene.events.index(event)
    answer = f"It happens {language.moment(event.seconds, scene.seconds)}."
    question = _pick(rng, WORDINGS[wording]).format(does=does)
    mentions = (Mention(does, event.subject, number),)
    return Turn("time", question, answer, event.subject, number, mentions, event.seconds)


def _happens(scene: Scene, kind: str) -> dict[int, int]:
    """Return the things to which events of this kind happen, each with its event's number."""
    return {event.subject: number for number, event in enumerate(scene.events) if event.kind == kind}


VERBS = {"disappear": "disappear", "leave": "leave", "turn": "change colour", "speed up": "speed up"}


def _ever(scene: Scene, rng: Rng) -> Turn | None:
    """Ask whether something ever happens; truth and kind of event are drawn first."""
    if scene.still:
        return None
    truth, kind = rng.random() < 0.5, _pick(rng, list(VERBS))
    happens = _happens(scene, kind)
    fitting = [i for i in range(len(scene.things)) if (i in happens) == truth]
    if (not happens and rng.random() < 0.8) or not fitting:  # else nearly all questions come from uneventful scenes
        return None
    subject = _pick(rng, fitting)
    words = _reference(scene, rng, subject)
    answer = "Yes." if truth else "No."
    return _turn("ever", rng, answer, subject, happens.get(subject), x=words, verb=VERBS[kind])


def _presence(scene: Scene, rng: Rng) -> Turn | None:
    if rng.random() < 0.5:
        return _turn("presence", rng, "No.", x=a(_absent_name(scene, rng)))
    subject = int(rng.integers(len(scene.things)))
    return _turn("presence", rng, "Yes.", subject, x=a(name(scene.things[subject])))


def _new_colour(scene: Scene, rng: Rng) -> Turn | None:
    fitting = [(i, thing.turns[1]) for i, thing in enumerate(scene.things) if thing.turns]
    if not fitting:
        return None
    subject, colour = _pick(rng, fitting)
    event = _happens(scene, "turn")[subject]
    return _turn("new colour", rng, f"It turns {colour}.", subject, event, x=f"the {name(scene.things[subject])}")


def _happening(scene: Scene, rng: Rng) -> Turn | None:
    """Ask what happens to a thing with one event or none."""
    if scene.still:
        return None
    events: list[Event | None] = [event for event in scene.events if len(scene.events_of(event.subject)) == 1]
    if rng.random() < 0.25:
        events = [None]
    if not events:
        return None
    event = _pick(rng, events)
    quiet = [i for i, thing in enumerate(scene.things) if thing.rests and not scene.events_of(i)]
    if event is None and not quiet:
        return None
    subject = _pick(rng, quiet) if event is None else event.subject
    answer = "Nothing happens to it." if event is None else sentence(clause(scene, event, "it"))
    number = None if event is None else scene.events.index(event)
    return _turn("happening", rng, answer, subject, number, x=f"the {name(scene.things[subject])}")


def _description(scene: Scene, rng: Rng) -> Turn | None:
    """Describe things in the order in which they are first seen, from the left to the right."""

    def entrance(subject: int) -> tuple[float, float]:
        begins = [e.seconds for e in scene.events if e.subject == subject and e.kind in ("appear", "enter")]
        return (min(begins, default=0.0), float(scene.things[subject].path.at(0.0)[0]))

    names = [a(name(scene.things[i])) for i in sorted(range(len(scene.things)), key=entrance)]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    medium = "picture" if scene.still else "video"
    return _turn("description", rng, sentence(f"I see {listed}"), medium=medium)


ASKERS: dict[str, Asker] = {
    "colour": _colour,
    "shape": _shape,
    "size": _size,
    "count": _count,
    "count of": _count_of,
    "quadrant": _quadrant,
    "beside": _beside,
    "direction": _direction,
    "speed": _speed,
    "extreme": _extreme,
    "order": _order,
    "time": _time,
    "ever": _ever,
    "presence": _presence,
    "new colour": _new_colour,
    "happening": _happening,
    "description": _description,
}
WEIGHTS = {"extreme": 2.0, "order": 4.0, "time": 2.5}  # hard ones that many scenes do not have
WEIGHTS |= dict.fromkeys(("direction", "count", "quadrant", "beside", "ever", "happening"), 1.5)
