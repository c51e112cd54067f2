"""The memory of a daemon, each process's proportional share, and how full the buffers get.

One question about a video of many frames is asked, then /proc and the metrics are read.

    python bench/footprint.py --model CHECKPOINT --frames 768
"""

import asyncio
import re
import tempfile
from pathlib import Path
from typing import Annotated

import httpx
import openai
import psutil
import typer
from rich.console import Console
from rich.table import Table
from streams import MODEL_SIZES, ask_video, frames, make_video, serving

from unifiedserve.config import DEFAULT_KV_CACHE_MIB, EngineConfig
from unifiedserve.models.tiny import make_checkpoint

PARTS = ("Pss", "Pss_Anon", "Pss_File", "Pss_Shmem")
MAX_PIXELS = 50_176
WORKER_MB = 700
WEIGHTS_FACTOR = 1.1


def processes() -> dict[str, dict[str, float]]:
    """Return the MB of each process of the daemon, by part."""
    found: dict[str, dict[str, float]] = {}
    for process in psutil.Process().children(recursive=True):
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        sizes = {part: int(re.search(rf"^{part}: +(\d+)", text, re.M)[1]) * 1024 / 1e6 for part in PARTS}
        found[f"{process.name()} {process.pid}"] = sizes
    return found


def buffers(url: str) -> dict[str, tuple[int, int]]:
    """Return the peak and total pages of each buffer."""
    text = httpx.get(f"{url}/metrics").raise_for_status().text
    values = re.findall(r'unifiedserve:buffer_(peak|total)_pages\{buffer="(\w+)",memory="mem0"\} (\S+)', text)
    pages = {(kind, buffer): int(float(value)) for kind, buffer, value in values}
    return {buffer: (pages["peak", buffer], pages["total", buffer]) for kind, buffer in pages if kind == "total"}


async def ask(url: str, video: Path, count: int) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=3600) as client:
        model = (await client.models.list()).data[0].id
        await ask_video(client, model, video, frames(count, MAX_PIXELS))


def show(console: Console, title: str, sizes: dict[str, dict[str, float]]) -> float:
    table = Table(title=title)
    for column in ("process", *(f"{part} MB" for part in PARTS)):
        table.add_column(column, justify="right")
    for name, parts in sizes.items():
        table.add_row(name, *(f"{parts[part]:.0f}" for part in PARTS))
    total = {part: sum(parts[part] for parts in sizes.values()) for part in PARTS}
    table.add_row("together", *(f"{total[part]:.0f}" for part in PARTS))
    console.print(table)
    return total["Pss"]


def main(
    model: Annotated[Path | None, typer.Option(help="Checkpoint; default: one of random weights")] = None,
    count: Annotated[int, typer.Option("--frames", help="Frames sampled from the video")] = 768,
    dtype: Annotated[str, typer.Option(help="As for serve")] = "auto",
) -> None:
    """Compare the proportional set sizes of all processes with weights x 1.1 + buffers + 700 MB a worker."""
    console, config = Console(), EngineConfig()
    with tempfile.TemporaryDirectory() as folder:
        video = Path(folder) / "video.mp4"
        make_video(video, -(-count // 30))
        checkpoint = model or make_checkpoint(Path(folder) / "model", sizes=MODEL_SIZES)
        weights = sum(file.stat().st_size for file in checkpoint.glob("*.safetensors")) / 1e6
        with serving(checkpoint, Path(folder), "--dtype", dtype) as daemon:
            show(console, "idle", processes())
            asyncio.run(ask(daemon.url, video, count))
            sizes = processes()
            total = show(console, f"after a request of {count} frames", sizes)
            for name, (peak, pages) in buffers(daemon.url).items():
                console.print(f"{name}: {peak} of {pages} pages at most in use at once")
    mib = (
        DEFAULT_KV_CACHE_MIB
        + config.memory.patch_buffer_mib
        + config.memory.visual_buffer_mib
        + config.memory.visual_cache_mib
    )
    limit = weights * WEIGHTS_FACTOR + mib * 2**20 / 1e6 + WORKER_MB * len(config.machine.workers.instances)
    console.print(f"{total:.0f} MB; weights x {WEIGHTS_FACTOR} + buffers + {WORKER_MB} MB a worker: {limit:.0f} MB")


if __name__ == "__main__":
    typer.run(main)
