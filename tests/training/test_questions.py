"""Every answer follows from the scene, and no question tells its answer."""

import re
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.world.language import NUMBERS, UNKNOWN, name
from training.world.questions import ASKERS, Turn, ask, conversation
from training.world.rendering import Renderer
from training.world.sampling import STILL, Recipe, sample_scene
from training.world.scene import COLOURS, SHAPES, Scene

SEEDS = st.integers(0, 2**32)
NAMES = re.compile(rf"\b({'|'.join(COLOURS)})\b|\b({'|'.join(SHAPES)})(e?s)?\b")


def asked(seed: int, category: str, recipe: Recipe) -> tuple[Scene, Turn] | None:
    scene = sample_scene(recipe, seed)
    turn = ask(scene, np.random.default_rng(seed), category)
    return None if turn is None else (scene, turn)


@settings(max_examples=60)
@given(seed=SEEDS)
def test_counts_are_those_of_the_masks(seed: int) -> None:
    """Of a still picture: by drawing each kind of thing alone and looking whether anything is there."""
    found = asked(seed, "count of", Recipe(seconds=STILL.seconds))
    if found is None:
        return
    scene, turn = found
    renderer = Renderer(scene, 64, 64)
    kinds = [
        thing
        for thing in scene.things
        if renderer.mask(thing, 0.0).any() and (thing.colour in turn.question or thing.shape in turn.question)
    ]
    answered = next(i for i, word in enumerate(NUMBERS) if f" {word} " in turn.answer)
    assert answered == len(kinds)


@settings(max_examples=60)
@given(seed=SEEDS)
def test_quadrants_are_those_of_the_masks(seed: int) -> None:
    found = asked(seed, "quadrant", STILL)
    if found is None or found[1].answer == UNKNOWN:
        return
    scene, turn = found
    assert turn.about is not None
    mask = Renderer(scene, 100, 100).mask(scene.things[turn.about], 0.0)
    y, x = (mask[..., None] * np.argwhere(np.ones_like(mask)).reshape(100, 100, 2)).sum((0, 1)) / mask.sum()
    assert ("top" in turn.answer) == (y < 50)
    assert ("left" in turn.answer) == (x < 50)


@settings(max_examples=60)
@given(seed=SEEDS)
def test_directions_are_those_of_the_pixels(seed: int) -> None:
    """The middle of the mask goes where the answer says, more than sideways."""
    found = asked(seed, "direction", Recipe((1, 2), (2.0, 12.0)))
    if found is None or found[1].answer == UNKNOWN:
        return
    scene, turn = found
    assert turn.about is not None
    thing = scene.things[turn.about]
    shown = [t for t in np.linspace(0, scene.seconds, 200, endpoint=False) if scene.shows(thing, t)]
    (x, y), (u, v) = thing.path.at(shown[0]), thing.path.at(shown[-1])
    across, down = float(u - x), float(v - y)
    if abs(across) < 1e-6 and abs(down) < 1e-6:
        assert turn.answer == "It does not move."
    elif abs(across) > abs(down):
        assert turn.answer == f"It moves to the {'right' if across > 0 else 'left'}."
    else:
        assert turn.answer == f"It moves {'down' if down > 0 else 'up'}."


@settings(max_examples=80)
@given(seed=SEEDS)
def test_times_are_those_of_events(seed: int) -> None:
    found = asked(seed, "time", Recipe(seconds=(2.0, 600.0)))
    if found is None or found[1].answer == UNKNOWN:
        return
    scene, turn = found
    said = re.search(r"second (\d+)|minute (\d+):(\d+)", turn.answer)
    assert said is not None
    assert turn.seconds is not None
    seconds = int(said[1]) if said[1] else 60 * int(said[2]) + int(said[3])
    assert abs(seconds - turn.seconds) <= (0.5 if said[1] else 5)
    assert any(event.seconds == turn.seconds for event in scene.events)


@settings(max_examples=60)
@given(seed=SEEDS, category=st.sampled_from(["colour", "shape", "size", "quadrant", "direction", "speed", "time"]))
def test_what_is_not_there_cannot_be_told(seed: int, category: str) -> None:
    found = asked(seed, category, Recipe())
    if found is None:
        return
    scene, turn = found
    words = re.findall(r"\w+", turn.question)  # what is asked about is named first
    colour = next((word for word in words if word in COLOURS), None)
    shape = next((word for word in words if word in SHAPES), None)
    there = any(
        (colour is None or colour in thing.colours) and (shape is None or shape == thing.shape)
        for thing in scene.things
    )
    assert (turn.answer == UNKNOWN) == (not there)


@settings(max_examples=60)
@given(seed=SEEDS, category=st.sampled_from(["extreme", "order", "time", "happening"]))
def test_events_asked_for_are_those_of_the_thing(seed: int, category: str) -> None:
    found = asked(seed, category, Recipe())
    if found is None or found[1].event is None:
        return
    scene, turn = found
    event = scene.events[found[1].event]
    assert turn.about == event.subject
    assert turn.seconds in (None, event.seconds)


def test_presence_is_what_the_scene_holds() -> None:
    for seed in range(100):
        found = asked(seed, "presence", Recipe())
        assert found is not None
        scene, turn = found
        assert (turn.answer == "Yes.") == any(name(thing) in turn.question for thing in scene.things)


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Counter[str]]]:
    """Of each category, for each question with names left out: how often which answer, names left out."""
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for seed in range(700):
        scene, rng = sample_scene(STILL if seed % 4 == 0 else Recipe(), seed), np.random.default_rng(seed)
        for category in ASKERS:
            turn = ask(scene, rng, category)
            if turn is not None:
                counts[category][NAMES.sub("…", turn.question)][turn.answer] += 1
    return counts


#: the most that one answer may have of a category's, for any way of asking: chance, and what small samples add
SHARES = {
    "colour": 0.25,
    "shape": 0.33,
    "size": 0.75,
    "count": 0.42,
    "quadrant": 0.42,
    "beside": 0.72,
    "direction": 0.42,
    "speed": 0.72,
    "time": 0.45,
    "ever": 0.72,
    "presence": 0.72,
    "new colour": 0.33,
}


@pytest.mark.parametrize("category", SHARES)
def test_no_question_tells_its_answer(category: str, answers: dict[str, dict[str, Counter[str]]]) -> None:
    for question, given_answers in answers[category].items():
        total = given_answers.total()
        if total >= 40:
            assert max(given_answers.values()) / total < SHARES[category], question


def test_conversations_follow_up_on_one_thing() -> None:
    longest = 0
    for seed in range(100):
        turns = conversation(sample_scene(Recipe(), seed), np.random.default_rng(seed))
        longest = max(longest, len(turns))
        assert len({turn.about for turn in turns}) == 1
        assert all(re.search(r"\bit\b", turn.question) for turn in turns[1:])
    assert longest == 3
