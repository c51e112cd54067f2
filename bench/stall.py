"""The freeze of a text stream while a two-minute video is decoded, encoded and prefilled.

One daemon at a time, the placements in turn, same model, same requests. A stream of text tokens runs; when it is
steady, a question about the video arrives; the stream's gaps are counted until the video's first token is there.

    python bench/stall.py --repeats 3 --json bench/results/stall.json --plot bench/results/stall.png
"""

import asyncio
import json
import platform
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from streams import MODEL_SIZES, NO_CACHES, Run, make_video, measure, serving
from streams import frames as sampled

from unifiedserve.doctor.machine import describe_machine
from unifiedserve.models.tiny import make_checkpoint


def summary(runs: list[Run]) -> dict[str, dict[str, float]]:
    """Return the medians over the repeats, by placement."""
    return {
        placement: {
            name: statistics.median(getattr(run, name) for run in runs if run.label == placement)
            for name in ("idle_gap", "worst_gap", "frozen", "video_ttft")
        }
        for placement in dict.fromkeys(run.label for run in runs)
    }


def show(console: Console, results: dict[str, dict[str, float]], runs: list[Run]) -> None:
    table = Table(title="A text stream while a 2-minute video arrives (medians; worst gap: min-max)")
    for column in ("placement", "idle gap ms", "worst gap ms", "min-max", "frozen %", "video TTFT s"):
        table.add_column(column, justify="right")
    for placement, row in results.items():
        worst = sorted(run.worst_gap * 1e3 for run in runs if run.label == placement)
        table.add_row(
            placement,
            f"{row['idle_gap'] * 1e3:.1f}",
            f"{row['worst_gap'] * 1e3:.0f}",
            f"{worst[0]:.0f}-{worst[-1]:.0f}",
            f"{row['frozen'] * 100:.0f}",
            f"{row['video_ttft']:.2f}",
        )
    console.print(table)


def draw(path: Path, runs: list[Run]) -> None:
    """Draw every token of the streams as a tick, and when the video was being worked on."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    first = {run.label: run for run in reversed(runs)}
    figure, axes = pyplot.subplots(len(first), 1, sharex=True, figsize=(10, 1.6 * len(first) + 1))
    for axis, (placement, run) in zip(axes, first.items(), strict=True):
        axis.axvspan(0, run.video_ttft, color="tab:orange", alpha=0.2, label="video request until its first token")
        axis.vlines(run.streams[0], 0, 1, color="tab:blue", linewidth=0.6, label="tokens of the text stream")
        axis.set_title(f"{placement}: worst gap {run.worst_gap * 1e3:.0f} ms", loc="left", fontsize=10)
        axis.set_yticks([])
    axes[-1].set_xlabel("seconds from the arrival of the video request")
    axes[0].legend(loc="upper right", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main(
    repeats: Annotated[int, typer.Option(help="Runs of each placement, in turn")] = 3,
    frames: Annotated[int, typer.Option(help="Frames sampled from the video")] = 120,
    json_file: Annotated[Path, typer.Option("--json", help="Where to save the figures")] = Path(
        "bench/results/stall.json"
    ),
    plot: Annotated[Path, typer.Option(help="Where to save the picture")] = Path("bench/results/stall.png"),
) -> None:
    """Compare the placements: worst gap of a running text stream while a video question arrives."""
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        video = Path(folder) / "two_minutes.mp4"
        model = make_checkpoint(Path(folder) / "model", sizes=MODEL_SIZES)
        make_video(video, 120)
        runs = []
        for placement in track(["shared", "monolithic"] * repeats, "measuring", console=console):
            with serving(model, Path(folder), "--placement", placement, *NO_CACHES) as daemon:
                runs.append(asyncio.run(measure(placement, daemon.url, [video], sampled(frames))))
    results = summary(runs)
    show(console, results, runs)
    json_file.parent.mkdir(parents=True, exist_ok=True)
    json_file.write_text(
        json.dumps(
            {
                "command": " ".join(["python", *sys.argv]),
                "machine": describe_machine(),
                "python": platform.python_version(),
                "medians": results,
                "runs": [asdict(run) for run in runs],
            }
        )
    )
    draw(plot, runs)


if __name__ == "__main__":
    typer.run(main)
