"""How soon the first token about one video comes when two encoders share its units, and when one has all (--irp off).

Each encoder has one core. The video comes alone, to a daemon of each kind in turn.

    python bench/irp.py
"""

import asyncio
import json
from pathlib import Path
from statistics import median
from typing import Annotated

import httpx
import typer
from rich.console import Console
from serve_cpu import checkpoint, footage
from serve_cpu.prompts import Prompts
from streams import NO_CACHES, serving

from unifiedserve.profiling.asking import Asker, Work

PLACEMENT = "e@0+p@0+v@1+e@1+d@1"  # 2e+1p+1d on two cores
KINDS = ("auto", "off")  # of --irp: the units are shared, or one encoder has all
FRAMES = 128
TEXT, ANSWER = 40, 2  # tokens
MEDIA = checkpoint.DEFAULT_FOLDER.parent / "media"


async def first_tokens(url: str, model: Path, video: Path, repeats: int) -> list[float]:
    """Return the seconds to the first token of a question about the video, asked again and again."""
    async with httpx.AsyncClient(base_url=url, timeout=300) as http:
        asker = Asker(http, Prompts(model).text)
        await asker.ask(Work(TEXT, ANSWER, video, FRAMES))
        return [(await asker.ask(Work(TEXT, ANSWER, video, FRAMES))).ttft for _ in range(repeats)]


def main(
    model: Annotated[Path, typer.Argument(help="Checkpoint")] = checkpoint.DEFAULT_FOLDER,
    media: Annotated[Path, typer.Option(help="Where the videos are, or are made")] = MEDIA,
    placement: Annotated[str, typer.Option(help="One with several encoders")] = PLACEMENT,
    repeats: Annotated[int, typer.Option(min=1, help="Of the question, with each daemon")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Of both daemons")] = 2,
    out: Annotated[Path, typer.Option(help="where to save the JSON")] = Path("bench/results/irp.json"),
) -> None:
    """Ask about one video of 128 frames with the units shared, and with one encoder."""
    console = Console()
    video = footage.ensure(media, console, quick=False).videos[0]
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            with serving(model, media, *NO_CACHES, "--placement", placement, "--irp", kind) as daemon:
                seconds[kind] += asyncio.run(first_tokens(daemon.url, model, video, repeats))
    shared, alone = (median(seconds[kind]) for kind in KINDS)
    console.print(f"shared {shared:.2f} s, one encoder {alone:.2f} s: {alone / shared:.2f} times sooner")
    found = {"command": "python bench/irp.py", "placement": placement, "frames": FRAMES, "first_token_seconds": seconds}
    out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
