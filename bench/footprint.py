"""The memory of a daemon, process by process, by what it is; and how full the buffers get.

It is read when the daemon has started, when streams have been answered, and after a question about a long video.

    python bench/footprint.py --model CHECKPOINT --frames 768 --json FILE --plot FILE
"""

import asyncio
import json
import re
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import httpx
import openai
import psutil
import typer
from rich.console import Console
from rich.table import Table
from streams import MODEL_SIZES, ask_video, frames, make_video, serving

from unifiedserve.config import MIB
from unifiedserve.models.tiny import make_checkpoint

KINDS = ("weights", "buffers", "heap", "libraries", "files", "stacks")
MAX_PIXELS = 50_176
STREAMS = 4
TOKENS = 96

Sizes = dict[str, Counter[str]]  # MiB by process: the share of each kind, "private" and "shared"


def kind_of(before: Any, mapping: Any) -> str:
    """Return what a mapping is, one of KINDS; `before` is the one below it in memory.

    The C library puts an inaccessible guard right below each thread's stack.
    """
    path = mapping.path
    if path.startswith("/dev/shm/"):
        return "weights" if "-weights" in path else "buffers"
    if "/unifiedserve/weights/" in path:  # those that an earlier start has kept
        return "weights"
    if path.startswith("/"):
        return "libraries" if ".so" in path else "files"
    guarded = before.perms.startswith("---") and before.addr.split("-")[1] == mapping.addr.split("-")[0]
    return "stacks" if path == "[stack]" or (path == "[anon]" and guarded) else "heap"


def sizes_of(process: psutil.Process) -> Counter[str]:
    """Return the MiB of a process: its proportional share by kind, and what it has alone and with others."""
    found: Counter[str] = Counter()
    for before, mapping in pairwise(process.memory_maps(grouped=False)):
        found[kind_of(before, mapping)] += mapping.pss / MIB
        found["private"] += (mapping.private_clean + mapping.private_dirty) / MIB
        found["shared"] += (mapping.shared_clean + mapping.shared_dirty) / MIB
    return found


def processes(daemon: int) -> Sizes:
    """Return the sizes of a daemon and all that it has started."""
    process = psutil.Process(daemon)
    family = [process, *process.children(recursive=True)]
    names = ["engine", *(each.name() for each in family[1:])]
    return {f"{name} ({each.pid})": sizes_of(each) for name, each in zip(names, family, strict=True)}


def total(sizes: Sizes) -> Counter[str]:
    """Return the sums over all processes; what they share is in "shared" as often as it is mapped."""
    return sum(sizes.values(), Counter())


def buffers(url: str) -> dict[str, tuple[int, int]]:
    """Return the peak and total pages of each buffer."""
    text = httpx.get(f"{url}/metrics").raise_for_status().text
    values = re.findall(r'unifiedserve:buffer_(peak|total)_pages\{buffer="(\w+)",memory="mem0"\} (\S+)', text)
    pages = {(kind, buffer): int(float(value)) for kind, buffer, value in values}
    return {buffer: (pages["peak", buffer], pages["total", buffer]) for kind, buffer in pages if kind == "total"}


async def ask_streams(url: str) -> None:
    """Have several answers written at once."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=3600) as client:
        model = (await client.models.list()).data[0].id

        async def ask(number: int) -> None:
            await client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": f"Tell me story number {number} about a river."}],
                max_tokens=TOKENS,
                extra_body={"ignore_eos": True},
            )

        await asyncio.gather(*map(ask, range(STREAMS)))


async def ask_about(url: str, video: Path, count: int) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=3600) as client:
        model = (await client.models.list()).data[0].id
        await ask_video(client, model, video, frames(count, MAX_PIXELS))


def show(console: Console, title: str, sizes: Sizes) -> None:
    table = Table(title=f"{title}: MiB, proportional (private, shared: of each process)")
    for column in ("process", *KINDS, "together", "private", "shared"):
        table.add_column(column, justify="right")
    for name, own in [*sizes.items(), ("all", total(sizes))]:
        figures = [*(own[kind] for kind in KINDS), sum(own[kind] for kind in KINDS), own["private"], own["shared"]]
        table.add_row(name, *(f"{figure:.0f}" for figure in figures))
    console.print(table)


def draw(path: Path, looks: dict[str, Sizes]) -> None:
    """Draw the processes of each look side by side, their proportional shares by kind on top of each other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    every = figure.subplots(1, len(looks), sharey=True, squeeze=False)[0]
    for axes, (title, sizes) in zip(every, looks.items(), strict=True):
        names, bottom = [name.partition(" (")[0].removeprefix("us:") for name in sizes], [0.0] * len(sizes)
        for kind in KINDS:
            heights = [own[kind] for own in sizes.values()]
            axes.bar(range(len(names)), heights, bottom=bottom, label=kind)
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
        axes.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=8)
        axes.set_title(f"{title}: {sum(bottom):,.0f} MiB", fontsize=9)
    figure.axes[0].set_ylabel("MiB (PSS)")
    figure.axes[-1].legend(fontsize=8)
    figure.savefig(path, dpi=120)


def main(
    model: Annotated[Path | None, typer.Option(help="Checkpoint; default: one of random weights")] = None,
    count: Annotated[int, typer.Option("--frames", help="Frames sampled from the video. 0: ask about none")] = 768,
    dtype: Annotated[str, typer.Option(help="As for serve")] = "auto",
    quantization: Annotated[str, typer.Option(help="As for serve")] = "none",
    placement: Annotated[str, typer.Option(help="As for serve")] = "shared",
    results: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw them into this file")] = None,
) -> None:
    """Show what each process of a daemon takes, and how many pages of each buffer were in use."""
    console, looks = Console(width=140), dict[str, Sizes]()
    options = ("--dtype", dtype, "--quantization", quantization, "--placement", placement)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = model or make_checkpoint(Path(folder) / "model", sizes=MODEL_SIZES)

        with serving(checkpoint, Path(folder), *options) as daemon:

            def look(title: str) -> None:
                looks[title] = processes(daemon.process.pid)
                show(console, title, looks[title])

            look("started")
            asyncio.run(ask_streams(daemon.url))
            look(f"after {STREAMS} streams")
            if count:
                make_video(video := Path(folder) / "video.mp4", -(-count // 30))
                asyncio.run(ask_about(daemon.url, video, count))
                look(f"after {count} frames")
            pages = buffers(daemon.url)
    for name, (peak, number) in pages.items():
        console.print(f"{name}: {peak} of {number} pages at most in use at once")
    if results:
        figures = {title: {name: dict(own) for name, own in sizes.items()} for title, sizes in looks.items()}
        named = {"model": checkpoint.name, "dtype": dtype, "quantization": quantization, "placement": placement}
        results.write_text(json.dumps({**named, "mib": figures, "pages": pages}, indent=1) + "\n")
    if plot:
        draw(plot, looks)


if __name__ == "__main__":
    typer.run(main)
