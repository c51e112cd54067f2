"""Scenes and their pictures: the same for the same seed, and what a scene says is what its pixels show."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.world.rendering import PAINTS, Renderer
from training.world.sampling import CLEARANCE, STILL, Recipe, sample_scene
from training.world.scene import COLOURS, SHAPES, Scene

SEEDS = st.integers(0, 2**32)
SIDE = 96


def scene_of(seed: int, still: bool) -> Scene:
    return sample_scene(STILL if still else Recipe(seconds=(2.0, 90.0)), seed)


def quiet(scene: Scene, seconds: float, only: int | None = None) -> Scene:
    """The scene as it is at a time, with one thing or none of them."""
    things = () if only is None else (scene.things[only],)
    return Scene(scene.aspect, scene.seconds, things, (), scene.look)


@settings(max_examples=25)
@given(seed=SEEDS, still=st.booleans())
def test_a_seed_gives_one_scene_and_one_picture(seed: int, still: bool) -> None:
    scene, again = scene_of(seed, still), scene_of(seed, still)
    assert scene == again
    moment = scene.seconds / 3
    first, second = Renderer(scene, SIDE, SIDE), Renderer(again, SIDE, SIDE)
    second.frame(0.0)  # what was drawn before makes no difference
    assert np.array_equal(first.frame(moment), second.frame(moment))


@settings(max_examples=40)
@given(seed=SEEDS, still=st.booleans(), at=st.floats(0, 0.999))
def test_things_are_seen_where_the_scene_says_and_in_its_colour(seed: int, still: bool, at: float) -> None:
    scene = scene_of(seed, still)
    moment = at * scene.seconds
    renderer, empty = Renderer(scene, SIDE, SIDE), Renderer(quiet(scene, moment), SIDE, SIDE)
    changed = np.abs(renderer.frame(moment).astype(int) - empty.frame(moment)).max(2) > 0
    covered = np.zeros((SIDE, SIDE), bool)
    for thing in scene.things:
        if not thing.begin <= moment < thing.end:
            continue
        mask = renderer.mask(thing, moment) > 0.99
        covered |= renderer.mask(thing, moment) > 0
        if mask.sum() > 20:
            mean = renderer.frame(moment)[mask].mean(0)
            nearest = min(COLOURS, key=lambda colour: np.abs(mean - PAINTS[colour]).sum())
            assert nearest == thing.colour_at(moment)
    assert not (changed & ~covered).any()


@settings(max_examples=40)
@given(seed=SEEDS)
def test_as_many_blobs_as_things(seed: int) -> None:
    """Counted from pixels: the connected regions that things cover in a still picture."""
    scene = scene_of(seed, still=True)
    renderer = Renderer(scene, round(2 * SIDE * scene.height), round(2 * SIDE * scene.width))
    covered = np.sum([renderer.mask(thing, 0.0) > 0.05 for thing in scene.things], axis=0)
    assert covered.max() <= 1
    assert _regions(covered > 0) == len(scene.things)


@settings(max_examples=40)
@given(seed=SEEDS)
def test_events_change_what_is_seen(seed: int) -> None:
    scene = scene_of(seed, still=False)
    step = 0.01 * scene.seconds
    for event in scene.events:
        thing = scene.things[event.subject]
        before, after = bool(scene.shows(thing, event.seconds - step)), bool(scene.shows(thing, event.seconds + step))
        if event.kind in ("appear", "enter"):
            assert (before, after) == (False, True)
        elif event.kind in ("disappear", "leave"):
            assert (before, after) == (True, False)
        elif event.kind == "turn":
            assert thing.colour_at(event.seconds - step) != thing.colour_at(event.seconds + step)
        elif event.kind == "collide":
            assert event.other is not None
            other = scene.things[event.other]
            (x, y), (u, v) = thing.path.at(event.seconds), other.path.at(event.seconds)
            assert np.hypot(x - u, y - v) <= (thing.size + other.size) / 2 + CLEARANCE
            assert other.rests
            assert not thing.rests


def test_all_kinds_occur() -> None:
    scenes = [sample_scene(Recipe(), seed) for seed in range(400)]
    assert {thing.shape for scene in scenes for thing in scene.things} == set(SHAPES)
    assert {thing.colour for scene in scenes for thing in scene.things} == set(COLOURS)
    assert len({event.kind for scene in scenes for event in scene.events}) == 7
    assert {len(scene.things) for scene in scenes} == {1, 2, 3, 4}


@pytest.mark.parametrize("things", [1, 4])
def test_as_many_things_as_wanted(things: int) -> None:
    assert all(len(sample_scene(Recipe((things, things)), seed).things) == things for seed in range(50))


def _regions(covered: np.ndarray) -> int:
    """Connected regions, by flooding them one after another."""
    left, count = covered.copy(), 0
    while left.any():
        count += 1
        stack = [tuple(np.argwhere(left)[0])]
        while stack:
            y, x = stack.pop()
            if 0 <= y < left.shape[0] and 0 <= x < left.shape[1] and left[y, x]:
                left[y, x] = False
                stack += [(y + down, x + across) for down in (-1, 0, 1) for across in (-1, 0, 1)]
    return count
