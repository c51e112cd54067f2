"""Draw requests from a mixture, and the media to render for them."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unifiedserve.bench.arrivals.seeds import stream
from unifiedserve.bench.requests import Medium, Request, Text, Turn
from unifiedserve.bench.workloads.media.recipes import Format, Image, Recipe, Video
from unifiedserve.bench.workloads.mix import Kind, Mix
from unifiedserve.bench.workloads.text import Writer

_ASPECTS = (4 / 3, 16 / 9, 3 / 4, 1.0)
_TURNS = 1000  # of a request at most, so that each turn's text has a number of its own
_SHORTEST = 1.0  # seconds of a video


@dataclass(frozen=True)
class Workload:
    """Hold requests, and the recipes of the files that they name. Files are made before requests are sent."""

    requests: list[Request]
    media: list[Recipe]


def build(mix: Mix, count: int, seed: int, writer: Writer, folder: Path) -> Workload:
    """Draw `count` requests, whose media will lie in `folder`; fewer are the first of more."""
    shares = np.array([kind.share for kind in mix.kind])
    images, videos = itertools.count(), itertools.count()
    workload = Workload([], [])
    for number in range(count):
        rng = stream(seed, "request", number)
        kind = mix.kind[rng.choice(len(mix.kind), p=shares / shares.sum())]
        media: list[Recipe] = [*_images(kind, images, seed, rng), *_videos(kind, videos, seed, rng)]
        turns = tuple(_turns(kind, number, writer, [medium(recipe, folder) for recipe in media], rng))
        workload.requests.append(Request(id=f"{seed}-{number}", kind=kind.name, turns=turns))
        workload.media.extend(media)
    return workload


def _images(kind: Kind, numbers: Iterator[int], seed: int, rng: np.random.Generator) -> Iterator[Image]:
    for _ in range(kind.images.whole(rng)):
        yield image(kind.pixels.draw(rng), next(numbers), seed, rng)


def _videos(kind: Kind, numbers: Iterator[int], seed: int, rng: np.random.Generator) -> Iterator[Video]:
    for _ in range(kind.videos.whole(rng)):
        form = Format(kind.codecs[int(rng.integers(len(kind.codecs)))], *kind.size)
        yield Video(max(_SHORTEST, round(kind.seconds.draw(rng), 2)), next(numbers), seed, form)


def image(pixels: float, number: int, seed: int, rng: np.random.Generator) -> Image:
    """Return an image of about so many pixels, in an aspect of cameras and screens."""
    aspect = _ASPECTS[int(rng.integers(len(_ASPECTS)))]
    height = max(16, round(math.sqrt(pixels / aspect)))
    return Image(max(16, round(height * aspect)), height, number, seed)


def medium(recipe: Recipe, folder: Path) -> Medium:
    """Return the part of a turn that a recipe's file is."""
    path = str(folder / recipe.name)
    if isinstance(recipe, Video):
        return Medium(kind="video", path=path, seconds=recipe.seconds)
    return Medium(kind="image", path=path)


def _turns(kind: Kind, number: int, writer: Writer, media: list[Medium], rng: np.random.Generator) -> Iterator[Turn]:
    for turn in range(min(max(1, kind.turns.whole(rng)), _TURNS)):
        text = Text(writer.text(number * _TURNS + turn, max(1, kind.text_tokens.whole(rng))))
        yield Turn(
            parts=(text,) if turn else (*media, text),
            max_tokens=max(1, kind.output_tokens.whole(rng)),
            pause=kind.pause.draw(rng) if turn else 0.0,
        )
