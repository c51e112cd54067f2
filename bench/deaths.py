"""How long streams stand still when the worker that decodes them is killed, with any checkpoint.

A death is followed until each stream has gone on; its text must be that of a stream that nothing disturbs. The server
gives up after five deaths in two minutes, so each has its share of them.

    python bench/deaths.py CHECKPOINT

writes bench/results/deaths.json.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Any

import msgspec
import openai
import psutil
import typer
from rich.console import Console
from rich.progress import track
from serve_cpu import checkpoint

from unifiedserve.cli.daemon import Daemon, daemon
from unifiedserve.doctor.machine import describe_machine

RESULTS = Path(__file__).parent / "results" / "deaths.json"
PROMPTS = ["Tell of a river.", "Tell of a boat and a bird.", "What is a star?", "Count the hills."]
OF_A_SERVER = 5  # deaths
PIECES = 12  # of each stream before a death, and after it


class Gaps(msgspec.Struct):
    """The longest gaps in seconds: of a stream at each death, and of streams that nothing disturbs."""

    command: str
    machine: dict[str, Any]
    model: str
    streams: int
    deaths: list[float]
    undisturbed: list[float]
    exact: bool


class Stream:
    """A stream of greedy text, with the times of its pieces."""

    def __init__(self) -> None:
        self.text = ""
        self.times: list[float] = []

    async def run(self, client: openai.AsyncOpenAI, model: str, prompt: str, pieces: int) -> None:
        """Read so many pieces."""
        asked = await client.completions.create(
            model=model, prompt=prompt, max_tokens=pieces, temperature=0, stream=True, extra_body={"ignore_eos": True}
        )
        async for chunk in asked:
            if chunk.choices and chunk.choices[0].text:
                self.text += chunk.choices[0].text
                self.times.append(time.monotonic())

    def gap(self, since: float = 0.0) -> float:
        """Return the longest gap that ended after a moment."""
        return max((later - sooner for sooner, later in pairwise(self.times) if later > since), default=0.0)


async def follow(client: openai.AsyncOpenAI, streams: int, worker: int | None) -> tuple[list[Stream], float]:
    """Read streams, kill a worker in their midst, if there is one, and return them with the moment of its death."""
    started, model = [Stream() for _ in range(streams)], (await client.models.list()).data[0].id
    async with asyncio.TaskGroup() as tasks:
        for stream, prompt in zip(started, PROMPTS, strict=False):
            tasks.create_task(stream.run(client, model, prompt, 3 * PIECES))
        while not all(len(stream.times) >= PIECES for stream in started):
            await asyncio.sleep(0.001)
        died = time.monotonic()
        if worker is not None:
            os.kill(worker, signal.SIGKILL)
    return started, died


def decode_worker(server: Daemon) -> int:
    """Return the process that decodes."""
    processes = psutil.Process(server.process.pid).children(recursive=True)
    return next(process.pid for process in processes if process.name() == "us:decode")


async def measure(server: Daemon, gaps: Gaps, deaths: Iterable[int]) -> None:
    """Kill what decodes, time and again."""
    client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    calm, _ = await follow(client, gaps.streams, None)
    calm, _ = await follow(client, gaps.streams, None)  # the first ones warm it up
    gaps.undisturbed.append(max(stream.gap() for stream in calm))
    for _ in deaths:
        streams, died = await follow(client, gaps.streams, decode_worker(server))
        gaps.deaths.append(max(stream.gap(died) for stream in streams))
        gaps.exact &= [stream.text for stream in streams] == [stream.text for stream in calm]


def main(
    model: Annotated[Path, typer.Argument(help="Checkpoint")] = checkpoint.DEFAULT_FOLDER,
    streams: Annotated[int, typer.Option(min=1, max=len(PROMPTS))] = 2,
    deaths: Annotated[int, typer.Option(min=1)] = 20,
    out: Annotated[Path, typer.Option(help="File of results, to which this model's are added")] = RESULTS,
) -> None:
    """Measure gaps at deaths."""
    console = Console()
    gaps = Gaps(" ".join(["python", *sys.argv]), describe_machine(), model.name, streams, [], [], exact=True)
    numbers = list(range(deaths))
    for first in track(numbers[::OF_A_SERVER], "deaths", console=console):
        with daemon(model, "--no-prefix-cache") as server:
            asyncio.run(measure(server, gaps, numbers[first : first + OF_A_SERVER]))
    known = msgspec.json.decode(out.read_bytes(), type=dict[str, Gaps]) if out.exists() else {}
    out.write_bytes(msgspec.json.format(msgspec.json.encode(known | {model.name: gaps})) + b"\n")
    p99 = quantiles(gaps.deaths, n=100, method="inclusive")[-1] if deaths > 1 else gaps.deaths[0]
    console.print(
        f"{model.name}: {deaths} deaths, gap p50 {median(gaps.deaths):.3f} s, p99 {p99:.3f} s; undisturbed at most "
        f"{max(gaps.undisturbed):.3f} s; texts {'exact' if gaps.exact else 'WRONG'}",
        highlight=False,
    )


if __name__ == "__main__":
    typer.run(main)
