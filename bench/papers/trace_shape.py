"""A trace's shape: what requests look like, and how unevenly they come (ModServe 10 and 11, of any trace).

    python bench/papers/trace_shape.py TRACE [TRACE...] --plot trace-shape.png

Needs no server and no model.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from unifiedserve.bench.arrivals.traces.row import Row
from unifiedserve.bench.arrivals.traces.trace import Trace
from unifiedserve.errors import ConfigError

MINUTE = 60.0
QUANTITIES: dict[str, Callable[[Row], int]] = {
    "input tokens": lambda row: row.input_tokens,
    "output tokens": lambda row: row.output_tokens,
    "images": lambda row: row.images,
}
PERCENTILES = (50, 90, 99)
TOLD = "p50 / p90 / p99"


def burstiness(rows: Sequence[Row]) -> float:
    """Return the deviation of the gaps between requests over their mean: 1 of a Poisson process, more in bursts."""
    gaps = np.diff([row.at for row in rows])
    return float(gaps.std() / gaps.mean()) if gaps.size and gaps.mean() else 0.0


def a_minute(rows: Sequence[Row]) -> np.ndarray:
    """Return the number of requests in each minute."""
    return np.bincount(np.array([row.at for row in rows], dtype=float).astype(int) // int(MINUTE))


def show(console: Console, traces: dict[str, list[Row]]) -> None:
    table = Table("", *traces)
    table.add_row("requests", *(str(len(rows)) for rows in traces.values()))
    table.add_row(
        "a minute, mean; most", *(f"{(n := a_minute(rows)).mean():.1f}; {n.max()}" for rows in traces.values())
    )
    table.add_row("CV of the gaps", *(f"{burstiness(rows):.2f}" for rows in traces.values()))
    table.add_row(
        "with images", *(f"{sum(row.images > 0 for row in rows) / len(rows):.0%}" for rows in traces.values())
    )
    for quantity, pick in QUANTITIES.items():
        table.add_row(f"{quantity}, {TOLD}", *(percentiles(map(pick, rows)) for rows in traces.values()))
    console.print(table)


def percentiles(values: Iterable[int]) -> str:
    return " / ".join(f"{value:.0f}" for value in np.percentile(list(values), PERCENTILES))


def draw(path: Path, traces: dict[str, list[Row]]) -> None:
    """Draw the requests of each minute, and the distributions of their sizes: those of text and those with images."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(traces), 1 + len(QUANTITIES), figsize=(14, 3 * len(traces) + 0.4), squeeze=False)
    for row_of_axes, (name, rows) in zip(axes, traces.items(), strict=True):
        row_of_axes[0].step(range(len(counts := a_minute(rows))), counts, where="post", linewidth=1)
        row_of_axes[0].set_title("requests in each minute", loc="left", fontsize=9)
        row_of_axes[0].set_ylabel(name, fontsize=8)
        row_of_axes[0].set_ylim(bottom=0)
        for axis, (quantity, pick) in zip(row_of_axes[1:], QUANTITIES.items(), strict=True):
            for label, some in (("text", [r for r in rows if not r.images]), ("images", [r for r in rows if r.images])):
                cumulative(axis, [pick(row) for row in some], label)
            axis.set_title(quantity, loc="left", fontsize=9)
            axis.set_xscale("symlog")
            axis.set_ylim(0, 1)
        row_of_axes[1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def cumulative(axis: Any, values: Sequence[float], label: str) -> None:
    if values:
        axis.step(np.sort(values), np.arange(1, len(values) + 1) / len(values), where="post", label=label)


def main(
    paths: Annotated[list[Path], typer.Argument(help="Traces: Azure's, Mooncake's, ...")],
    plot: Annotated[Path, typer.Option(help="Where to save the picture")] = Path("trace-shape.png"),
    seed: Annotated[int, typer.Option(help="Of what a trace leaves open")] = 0,
) -> None:
    """Show what traces are made of."""
    console = Console()
    try:
        traces = {path.name: Trace(path).rows(seed) for path in paths}
    except ConfigError as error:
        console.print(str(error), style="red", highlight=False)
        raise typer.Exit(2) from error
    show(console, traces)
    draw(plot, traces)
    console.print(f"written: {plot}")


if __name__ == "__main__":
    typer.run(main)
