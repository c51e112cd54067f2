"""Stage pools beside replicas: two encode and two text nodes against four whole engines, on the same machine.

Both shapes are asked the same course of texts, images and videos, in turns, at random times that are the same for both.
Nodes have one thread for each worker and no caches, and all of them share the machine's cores.

    python bench/stage_pools.py --rounds 4 --json bench/results/stage-pools.json
"""

import asyncio
import base64
import contextlib
import json
import os
import random
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import httpx
import numpy as np
import typer
from cluster import CHAT, QUANTILES, router
from rich.console import Console
from rich.table import Table

from unifiedserve.cli.daemon import daemon
from unifiedserve.config import CLUSTER_KEY
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.samples import FOLDER

SHAPES = {"stage pools": ["v+e", "v+e", "p+d", "p+d"], "replicas": ["shared"] * 4}
MIXTURE = {"text": 0.7, "image": 0.15, "video": 0.15}
QUESTION = "What is shown? Answer at length."
NO_CACHES = ["--no-prefix-cache", "--visual-cache-mib=0"]


class Asked(NamedTuple):
    """A request of the course: when it comes (seconds), and how many frames are looked at of a video."""

    at: float
    kind: str
    frames: int


@dataclass
class Seen:
    """Times of answers, in seconds, by kind of request."""

    firsts: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in MIXTURE})
    gaps: list[float] = field(default_factory=list)  # between tokens of texts
    rates: list[float] = field(default_factory=list)  # tokens a second, of whole courses


def course(seed: int, requests: int, rate: float) -> list[Asked]:
    """Return requests that come at random (Poisson), so many a second on average."""
    draw, now, asked = random.Random(seed), 0.0, list[Asked]()
    for _ in range(requests):
        now += draw.expovariate(rate)
        (kind,) = draw.choices(list(MIXTURE), list(MIXTURE.values()))
        asked.append(Asked(now, kind, draw.randrange(8, 33)))
    return asked


def content(asked: Asked, number: int) -> list[dict[str, Any]]:
    """Return the parts of a message."""
    text = {"type": "text", "text": f"{number}. {QUESTION}"}
    if asked.kind == "text":
        return [text]
    name, label = ("shapes.jpg", "image/jpeg") if asked.kind == "image" else ("shapes-motion.mp4", "video/mp4")
    url = f"data:{label};base64,{base64.b64encode((FOLDER / name).read_bytes()).decode()}"
    return [{"type": f"{asked.kind}_url", f"{asked.kind}_url": {"url": url}}, text]


async def ask(http: httpx.AsyncClient, url: str, asked: Asked, number: int, tokens: int, seen: Seen) -> None:
    """Read an answer of so many tokens, when its time has come."""
    body = {
        "messages": [{"role": "user", "content": content(asked, number)}],
        "media_io_kwargs": {"video": {"num_frames": asked.frames}},
        "stream": True,
        "temperature": 0,
        "max_tokens": tokens,
        "ignore_eos": True,
    }
    await asyncio.sleep(asked.at)
    began, times = time.perf_counter(), list[float]()
    async with http.stream("POST", url + CHAT, json=body) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if '"content":"' in line and '"role"' not in line:
                times.append(time.perf_counter())
    seen.firsts[asked.kind].append(times[0] - began)
    if asked.kind == "text":
        seen.gaps += [float(gap) for gap in np.diff(times)]


async def run(url: str, requests: Sequence[Asked], tokens: int, seen: Seen) -> None:
    """Ask all of a course."""
    async with httpx.AsyncClient(timeout=600, limits=httpx.Limits(max_connections=None)) as http:
        began = time.perf_counter()
        await asyncio.gather(*[ask(http, url, asked, n, tokens, seen) for n, asked in enumerate(requests)])
        seen.rates.append(len(requests) * tokens / (time.perf_counter() - began))


@contextlib.contextmanager
def serving(model: str, placements: Sequence[str]) -> Iterator[str]:
    """Yield the URL of a router in front of a node for each placement."""
    with contextlib.ExitStack() as stack:
        options = ["--torch-threads=1", "--vision-threads=1", *NO_CACHES]
        starting = [daemon(model, "--placement", each, *options) for each in placements]
        pool = stack.enter_context(ThreadPoolExecutor(len(starting)))  # a node ends with the thread that started it
        nodes = list(pool.map(stack.enter_context, starting))
        yield stack.enter_context(router(*(node.url for node in nodes)))


def figures(seen: Seen) -> dict[str, Any]:
    """Return the times of a shape in milliseconds, and its rate."""
    times = {f"TTFT of {kind}s": firsts for kind, firsts in seen.firsts.items()} | {"time between tokens": seen.gaps}
    found = {
        f"{what}, {name}, ms": round(float(np.quantile(seconds, quantile)) * 1e3, 2)
        for what, seconds in times.items()
        for name, quantile in QUANTILES.items()
        if seconds
    }
    return {**found, "tokens a second, mean": round(float(np.mean(seen.rates)), 1)}


def main(
    model: Annotated[str, typer.Option(help="A directory or a hub id. Empty: the bundled model")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Courses that each shape is asked")] = 4,
    requests: Annotated[int, typer.Option(min=1, help="Requests of a course")] = 60,
    rate: Annotated[float, typer.Option(min=0.01, help="Requests a second")] = 6.0,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of each answer")] = 48,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save the figures")] = None,
) -> None:
    """Compare the two shapes of a cluster."""
    os.environ.setdefault(CLUSTER_KEY, secrets.token_hex(32))
    seen = {shape: Seen() for shape in SHAPES}
    with contextlib.ExitStack() as stack:
        urls = {shape: stack.enter_context(serving(model, placements)) for shape, placements in SHAPES.items()}
        for url in urls.values():
            asyncio.run(run(url, course(-1, 12, rate), 4, Seen()))  # warms up
        for number in range(rounds):
            for shape in list(urls)[:: 1 if number % 2 else -1]:
                asyncio.run(run(urls[shape], course(number, requests, rate), tokens, seen[shape]))
    found = {shape: figures(each) for shape, each in seen.items()}
    rows = Table("", *found)
    for what in found["replicas"]:
        rows.add_row(what, *(f"{each.get(what, float('nan')):,.1f}" for each in found.values()))
    Console().print(rows)
    if json_file is not None:
        told = {
            "command": " ".join(["python", *sys.argv]),
            "machine": describe_machine(),
            "shapes": SHAPES,
            "figures": found,
        }
        json_file.write_text(json.dumps(told) + "\n")


if __name__ == "__main__":
    typer.run(main)
