"""The saving by the caches: the time to first token of a video's first question, of a second one, and of one elsewhere.

Each video is asked about three times: as a new one; with another question, which finds all but its own words in the
prefix cache; and after another system prompt, where only the visual tokens are found. The same daemon without caches
tells what all three cost anew.

    python bench/repeated_video.py --videos 5
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import openai
import typer
from rich.console import Console
from rich.table import Table
from streams import MODEL_SIZES, NO_CACHES, ask_video, frames, make_video, serving

from unifiedserve.doctor.machine import describe_machine
from unifiedserve.models.tiny import make_checkpoint

MAX_PIXELS = 50_176  # pixels a frame at most
ASKED = {
    "first question": ("You are a helpful assistant.", "What happens?"),
    "another question": ("You are a helpful assistant.", "Who is to be seen, and where?"),
    "another system prompt": ("Answer like a sailor.", "What happens?"),
}
Times = dict[str, list[float]]


async def first_token(
    client: openai.AsyncOpenAI, video: Path, asked: tuple[str, str], sampling: dict[str, Any]
) -> float:
    """Return the seconds to the first token."""
    system, question = asked
    parts: Any = [{"type": "video_url", "video_url": {"url": video.as_uri()}}, {"type": "text", "text": question}]
    start = time.monotonic()
    await client.chat.completions.create(
        model=(await client.models.list()).data[0].id,
        messages=[{"role": "system", "content": system}, {"role": "user", "content": parts}],
        max_tokens=1,
        extra_body=sampling,
    )
    return time.monotonic() - start


async def measure(url: str, videos: list[Path], count: int) -> Times:
    """Ask about one video after the other; the first one warms up."""
    times: Times = {name: [] for name in ASKED}
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=600) as client:
        model = (await client.models.list()).data[0].id
        await ask_video(client, model, videos[0], frames(8))
        for video in videos[1:]:
            for name, asked in ASKED.items():
                times[name].append(await first_token(client, video, asked, frames(count, MAX_PIXELS)))
    return times


def show(console: Console, cached: Times, anew: Times) -> dict[str, float]:
    """Print the medians, and the ratios of those with caches to those without."""
    table = Table(title="Time to first token (medians)")
    for column in ("", "with caches, s", "without, s", "ratio"):
        table.add_column(column, justify="right")
    ratios = {name: statistics.median(cached[name]) / statistics.median(anew[name]) for name in ASKED}
    for name, ratio in ratios.items():
        with_caches, without = (f"{statistics.median(times[name]):.3f}" for times in (cached, anew))
        table.add_row(name, with_caches, without, f"{ratio:.3f}")
    console.print(table)
    return ratios


def main(
    videos: Annotated[int, typer.Option(min=1, help="Videos asked about, three questions each")] = 5,
    count: Annotated[int, typer.Option("--frames", help="Frames sampled from each video")] = 64,
    model: Annotated[Path | None, typer.Option(help="Checkpoint; default: one of random weights")] = None,
    json_file: Annotated[Path, typer.Option("--json", help="Where to save the figures")] = Path(
        "bench/results/repeated-video.json"
    ),
) -> None:
    """Ask about each video three times, with and without caches."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"video{number}.mp4" for number in range(videos + 1)]
        for number, path in enumerate(paths):
            make_video(path, 60 + number)
        checkpoint = model or make_checkpoint(Path(folder) / "model", sizes=MODEL_SIZES)
        with serving(checkpoint, Path(folder)) as daemon:
            cached = asyncio.run(measure(daemon.url, paths, count))
        with serving(checkpoint, Path(folder), *NO_CACHES) as daemon:
            anew = asyncio.run(measure(daemon.url, paths, count))
    ratios = show(Console(), cached, anew)
    result = {"command": " ".join(["python", *sys.argv]), "machine": describe_machine(), "frames": count}
    json_file.parent.mkdir(parents=True, exist_ok=True)
    json_file.write_text(json.dumps({**result, "ratios": ratios, "cached": cached, "anew": anew}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
