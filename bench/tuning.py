"""The trade of --slo-tbt: the time between tokens of text streams against the time to first token of videos.

Four streams run when four questions about videos arrive at once, with one target after another, each placement.

    python bench/tuning.py --repeats 3 --json bench/results/tuning.json --plot bench/results/tuning.png
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
from streams import MODEL_SIZES, NO_CACHES, Run, gauge, make_video, measure, serving
from streams import frames as sampled

from unifiedserve.doctor.machine import describe_machine
from unifiedserve.models.tiny import make_checkpoint

MAX_PIXELS = 50_176  # pixels a frame at most
FACTORS = (1.0, 0.7, 0.85, 1.5, 2.5, 4.0)  # multiples of the default target, which comes first
FIGURES = ("idle_gap", "median_gap", "worst_gap", "frozen", "video_ttft")


@dataclass
class Point:
    """Runs with one target (ms)."""

    placement: str
    target: float
    runs: list[Run]

    def median(self, figure: str) -> float:
        return statistics.median(getattr(run, figure) for run in self.runs)


def sweep(model: Path, videos: list[Path], frames: int, streams: int, placement: str, repeats: int) -> list[Point]:
    """Measure the default target, then others in proportion to it, in turn."""
    points: list[Point] = []
    for number in track(range(repeats * len(FACTORS)), placement):
        factor = FACTORS[number % len(FACTORS)]
        target = [] if factor == 1 else ["--slo-tbt", f"{factor * points[0].target:.1f}"]
        with serving(model, videos[0].parent, "--placement", placement, *NO_CACHES, *target) as daemon:
            if number < len(FACTORS):
                points.append(Point(placement, gauge(daemon.url, "slo_tbt_seconds") * 1e3, []))
            run = asyncio.run(
                measure(f"{placement} x{factor:g}", daemon.url, videos, sampled(frames, MAX_PIXELS), streams)
            )
            points[number % len(FACTORS)].runs.append(run)
    return sorted(points, key=lambda point: point.target)


def show(console: Console, points: list[Point]) -> None:
    table = Table(title="Text streams while videos arrive (medians)")
    for column in ("placement", "target ms", "idle gap ms", "gap ms", "worst ms", "frozen %", "videos' TTFT s"):
        table.add_column(column, justify="right")
    for point in points:
        idle, gap, worst, frozen, ttft = (point.median(figure) for figure in FIGURES)
        cells = [f"{point.target:.0f}", f"{idle * 1e3:.0f}", f"{gap * 1e3:.0f}", f"{worst * 1e3:.0f}"]
        table.add_row(point.placement, *cells, f"{frozen * 100:.0f}", f"{ttft:.2f}")
    console.print(table)


def draw(path: Path, points: list[Point]) -> None:
    """Draw the streams' gaps (median, whiskers to the worst) over the videos' mean TTFT, a line a placement."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 5))
    for placement in dict.fromkeys(point.placement for point in points):
        line = [point for point in points if point.placement == placement]
        ttft = [point.median("video_ttft") for point in line]
        gap = [point.median("median_gap") * 1e3 for point in line]
        above = [point.median("worst_gap") * 1e3 - middle for point, middle in zip(line, gap, strict=True)]
        axis.errorbar(ttft, gap, yerr=[[0.0] * len(gap), above], marker="o", capsize=3, label=placement)
        for x, y, point in zip(ttft, gap, line, strict=True):
            axis.annotate(f"{point.target:.0f}", (x, y), textcoords="offset points", xytext=(6, -12), fontsize=8)
    axis.set_yscale("log")
    axis.set_xlabel("mean time to first token of the videos, s")
    axis.set_ylabel("time between tokens of the streams, ms\n(median; whiskers: worst)")
    axis.set_title("--slo-tbt (ms, at the points): smooth streams against fast videos")
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main(
    repeats: Annotated[int, typer.Option(help="Runs of each target, in turn")] = 3,
    model: Annotated[Path | None, typer.Option(help="Checkpoint; default: one of random weights")] = None,
    frames: Annotated[int, typer.Option(help="Frames sampled from each video")] = 64,
    streams: Annotated[int, typer.Option(help="Text streams")] = 4,
    videos: Annotated[int, typer.Option(help="Videos that arrive at once")] = 4,
    json_file: Annotated[Path, typer.Option("--json", help="Where to save the figures")] = Path(
        "bench/results/tuning.json"
    ),
    plot: Annotated[Path, typer.Option(help="Where to save the picture")] = Path("bench/results/tuning.png"),
) -> None:
    """Move the target between tokens: what streams gain, videos pay."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"video{number}.mp4" for number in range(videos)]
        for number, path in enumerate(paths):
            make_video(path, 60 + number)
        checkpoint = model or make_checkpoint(Path(folder) / "model", sizes=MODEL_SIZES)
        points = [
            point
            for placement in ("shared", "monolithic")
            for point in sweep(checkpoint, paths, frames, streams, placement, repeats)
        ]
    show(Console(), points)
    json_file.parent.mkdir(parents=True, exist_ok=True)
    result = {"command": " ".join(["python", *sys.argv]), "machine": describe_machine()}
    json_file.write_text(json.dumps({**result, "points": [asdict(point) for point in points]}))
    draw(plot, points)


if __name__ == "__main__":
    typer.run(main)
