"""What the stages' work costs on this machine with a model, measured as `unifiedserve profile` does, for the simulator.

Pages that a carrier brings from another memory are measured without the daemon, in pages of the sizes that it has.

    python bench/stage_costs.py CHECKPOINT --json bench/results/stage-costs.json
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import httpx
import msgspec
import typer
from pull_costs import page_bytes, pull_costs
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from serve_cpu import checkpoint, footage
from serve_cpu.prompts import Prompts
from streams import NO_CACHES, serving

from unifiedserve.profiling.asking import Asker
from unifiedserve.profiling.effort import FULL
from unifiedserve.profiling.media import Media
from unifiedserve.profiling.stage_costs import measure_costs
from unifiedserve.profiling.subject import encoder_layers
from unifiedserve.scheduling.simulation import StageCosts

FRAMES = FULL.frames
MEDIA = checkpoint.DEFAULT_FOLDER.parent / "media"
VIDEO_SECONDS = footage.VIDEOS[0].seconds


def show(console: Console, costs: StageCosts) -> None:
    table = Table("work", "ms", title="Costs of stages")
    table.caption = f"half {costs.half:.2f}, waste {costs.waste:.2f}, {costs.encoder_layers} layers of the encoder"
    for name in costs.__struct_fields__:
        if name not in ("half", "waste", "encoder_layers"):
            table.add_row(name, f"{getattr(costs, name) * 1e3:.5g}")
    console.print(table)


async def measured(
    url: str, model: Path, found: footage.Media, repeats: int, step: Callable[[str], object]
) -> StageCosts:
    """Return the costs on a daemon that does nothing else; `step` is told what is measured next."""
    media = Media.of(found.images[0], found.videos[0])
    async with httpx.AsyncClient(base_url=url, timeout=300) as http:
        asker = Asker(http, Prompts(model).text)
        return (await measure_costs(asker, media, FULL._replace(repeats=repeats), step)).stage_costs()


def main(
    model: Annotated[Path, typer.Argument(help="Checkpoint")] = checkpoint.DEFAULT_FOLDER,
    media_folder: Annotated[Path, typer.Option("--media", help="Where the videos are, or are made")] = MEDIA,
    placement: Annotated[str, typer.Option(help="A placement, as of the daemon")] = "shared",
    carrier: Annotated[str, typer.Option(help="What brings pages from one memory to another")] = "shared",
    repeats: Annotated[int, typer.Option(min=1, help="Of each request")] = 2,
    json_file: Annotated[Path, typer.Option("--json", help="Where to save the costs")] = Path(
        "bench/results/stage-costs.json"
    ),
) -> None:
    """Measure what the stages' work costs."""
    console = Console()
    found = footage.ensure(media_folder, console, quick=False)
    options = (*NO_CACHES, "--speculative-tokens", "0", "--no-overlap", "--placement", placement)
    with serving(model, media_folder, *options) as daemon, Progress(console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)
        costs = asyncio.run(
            measured(daemon.url, model, found, repeats, lambda what: progress.update(task, description=what))
        )
        sizes = page_bytes(daemon.process.pid)
    costs = msgspec.structs.replace(costs, encoder_layers=encoder_layers(model), **pull_costs(carrier, sizes))
    show(console, costs)
    costs.save(json_file)


if __name__ == "__main__":
    typer.run(main)
