"""Whether a target between tokens (--slo-tbt) is held beside videos: the percentiles of what streams' readers see.

Four streams run when questions about videos arrive at once; one daemon a target and round, targets in turn.

    python bench/held_target.py --model CHECKPOINT --rounds 3 --json bench/results/held-target.json
"""

import asyncio
import json
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from streams import MODEL_SIZES, NO_CACHES, make_video, measure, serving
from streams import frames as sampled

from unifiedserve.doctor.machine import describe_machine
from unifiedserve.models.tiny import make_checkpoint

MAX_PIXELS = 50_176  # pixels a frame at most
PERCENTILES = (50, 90, 99)


@dataclass
class Round:
    """Gaps between the tokens of all streams until the last video's first token, in milliseconds; TTFT in seconds."""

    target: float
    gaps: int
    p50: float
    p90: float
    p99: float
    worst: float
    video_ttft: float


def one_round(model: Path, videos: list[Path], frames: int, streams: int, target: float, placement: str) -> Round:
    """Measure a daemon with a target, in milliseconds."""
    options = ("--placement", placement, "--slo-tbt", f"{target:g}", *NO_CACHES)
    with serving(model, videos[0].parent, *options) as daemon:
        run = asyncio.run(measure("", daemon.url, videos, sampled(frames, MAX_PIXELS), streams))
    gaps = sorted(1e3 * gap for gap in run.during)
    p50, p90, p99 = (gaps[min(len(gaps) - 1, len(gaps) * percent // 100)] for percent in PERCENTILES)
    return Round(target, len(gaps), p50, p90, p99, gaps[-1], run.video_ttft)


def show(console: Console, rounds: list[Round]) -> None:
    table = Table(title="Time between tokens beside videos, ms: medians of rounds (lowest-highest)")
    for column in ("target", "p50", "p90", "p99", "p99 / target", "worst", "videos' TTFT s"):
        table.add_column(column, justify="right")
    for target in sorted({each.target for each in rounds}):
        own = [each for each in rounds if each.target == target]
        cells = [_spread([getattr(each, name) for each in own]) for name in ("p50", "p90", "p99")]
        ratio = f"{statistics.median(each.p99 for each in own) / target:.2f}"
        table.add_row(
            f"{target:g}",
            *cells,
            ratio,
            _spread([each.worst for each in own]),
            f"{statistics.median(each.video_ttft for each in own):.1f}",
        )
    console.print(table)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})"


def main(
    targets: Annotated[str, typer.Option(help="Milliseconds, with commas between")] = "100,120,200",
    rounds: Annotated[int, typer.Option(help="Runs of each target, in turn")] = 3,
    model: Annotated[Path | None, typer.Option(help="Checkpoint; default: one of random weights")] = None,
    placement: Annotated[str, typer.Option(help="shared or monolithic")] = "shared",
    frames: Annotated[int, typer.Option(help="Frames sampled from each video")] = 32,
    streams: Annotated[int, typer.Option(help="Text streams")] = 4,
    videos: Annotated[int, typer.Option(help="Videos that arrive at once")] = 3,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save the figures")] = None,
) -> None:
    """Measure targets."""
    wanted = [float(target) for target in targets.split(",")]
    found: list[Round] = []
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"video{number}.mp4" for number in range(videos)]
        for number, path in enumerate(paths):
            make_video(path, 60 + number)
        checkpoint = model or make_checkpoint(Path(folder) / "model", sizes=MODEL_SIZES)
        for number in track(range(rounds * len(wanted)), "rounds", console=Console(stderr=True)):
            target = wanted[number % len(wanted)]
            found.append(one_round(checkpoint, paths, frames, streams, target, placement))
    show(Console(), found)
    if json_file:
        result = {"command": " ".join(["python", *sys.argv]), "machine": describe_machine(), "placement": placement}
        json_file.write_text(json.dumps({**result, "rounds": [asdict(each) for each in found]}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
