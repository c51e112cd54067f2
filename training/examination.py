"""The bundled model's examination: questions about scenes that it was never trained on, as files."""

import base64
import io
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

import flashcodec
from training.recipe.batches import EXAMINATION
from training.recipe.clips import CODECS, Source, encode
from training.world.questions import ASKERS, Turn, ask
from training.world.sampling import ASPECTS, STILL, Recipe, sample_scene
from training.world.scene import Scene

SEED = 2**31  # training runs have small seeds
SHORT, LONG = Recipe(seconds=(3.0, 16.0)), Recipe(seconds=(120.0, 600.0))
STILLS, LONGS = 0.2, 0.1  # shares of the scenes
TOLERANCE = 0.1  # share of the video's length by which a time may be off
JPEG_QUALITY = 75
TIME = re.compile(r"second (\d+)|minute (\d+):(\d+)")


@dataclass(frozen=True)
class Paper:
    """A file and questions about its scene."""

    scene: Scene
    file: Path
    turns: tuple[Turn, ...]


def papers(count: int, folder: Path, seed: int = 0) -> Iterator[Paper]:
    """Yield `count` scenes, written into `folder` by different codecs, sizes, rates and qualities."""
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


def examine(url: str, papers: Iterable[Paper]) -> Iterator[tuple[Paper, Turn, str]]:
    """Yield the answers of the daemon at `url`, which must be allowed to read the files."""
    with httpx.Client(base_url=url, timeout=600) as client, ThreadPoolExecutor(4) as pool:
        for paper in papers:
            asked = [pool.submit(_answer, client, _part(paper), turn) for turn in paper.turns]
            for turn, answer in zip(paper.turns, asked, strict=True):
                yield paper, turn, answer.result()


def _part(paper: Paper) -> dict[str, Any]:
    """Return the medium as a part of a message: a still scene as the JPEG of its only frame."""
    if not paper.scene.still:
        return {"type": "video_url", "video_url": {"url": paper.file.as_uri()}}
    buffer = io.BytesIO()
    Image.fromarray(flashcodec.sample(paper.file, indices=[0]).data[0]).save(buffer, "JPEG", quality=JPEG_QUALITY)
    text = base64.b64encode(buffer.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{text}"}}


def _answer(client: httpx.Client, medium: dict[str, Any], turn: Turn) -> str:
    content = [medium, {"type": "text", "text": turn.question}]
    body = {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 60}
    reply = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    text: str = reply["choices"][0]["message"]["content"]
    return text


def is_right(scene: Scene, turn: Turn, answer: str) -> bool:
    """Say whether this is exactly the answer; a time may be off by a tenth of the video."""
    said = TIME.search(answer)
    if turn.seconds is None or said is None:
        return answer.strip() == turn.answer
    seconds = int(said[1]) if said[1] else 60 * int(said[2]) + int(said[3])
    return abs(seconds - turn.seconds) <= TOLERANCE * scene.seconds


def row_of(scene: Scene, turn: Turn) -> str:
    """Return the row of the table: the category, with the hard cases by themselves."""
    if turn.category == "count":
        return "count of four" if " four " in turn.answer else "count up to three"
    return f"{turn.category}, minutes long" if scene.seconds >= LONG.seconds[0] else turn.category
