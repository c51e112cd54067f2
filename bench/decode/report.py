"""The figures as Markdown and as pictures.

python bench/decode/report.py   # again from bench/results/decode.json
"""

import json
import statistics
from pathlib import Path
from typing import Annotated, Any

import typer
from results import Figures, RowResult, digits, paired, rows_of, spread

RESULTS = Path(__file__).parents[1] / "results"


def markdown(document: dict[str, Any]) -> str:
    rows = measured(document)
    machine = ", ".join(document["machine"].values())
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    lines = [
        "# FlashCodec beside other decoders",
        "",
        f"Measured on: {machine}; load before: {document['load']:.1f}. `{document['command']}`. With {versions}.",
        "See bench/decode/README.md for what the columns mean.",
        "",
        *summary(rows, document["cores"]),
    ]
    for row in rows:
        lines += ["", *table(row, document["cores"])]
    return "\n".join(lines) + "\n"


def measured(document: dict[str, Any]) -> list[RowResult]:
    """Return the rows that have at least a round."""
    return rows_of(document | {"rows": [row for row in document["rows"] if row]})


def summary(rows: list[RowResult], cores: int) -> list[str]:
    lines = [
        line(
            "task, file",
            "FlashCodec s",
            "CPU / floor",
            "wall / (floor / cores)",
            "best peer",
            "its time / FlashCodec's",
        ),
        line(*["---"] * 6),
    ]
    for row in rows:
        ours, best = row.figures.get("FlashCodec"), row.best_peer()
        if ours is None:
            continue
        cells = [spread(ours.walls, digits) or f"{ours.failure}", *over_floor(row, ours, cores), best or "none"]
        lines.append(line(row.title, *cells, spread(row.ratios(best), digits) if best else ""))
    return lines


def table(row: RowResult, cores: int) -> list[str]:
    floors = row.floors
    lines = [f"## {row.title}", "", f"{row.meaning}; {row.asked:,} frames in all."]
    if floors.cpus:
        lines[-1] += (
            " "
            f"Floor: {floors.packets:,} of {floors.of_packets:,} packets, {spread(floors.cpus, digits)} CPU s"
            f" (a reference {digits(floors.reference_ms)} ms, another {digits(floors.other_ms)} ms)."
        )
    columns = (
        "wall s",
        "time / FlashCodec's",
        "CPU s",
        "CPU / floor",
        "wall / (floor / cores)",
        "peak MB",
        "frames",
        "how",
    )
    lines += ["", line("", *columns), line(*["---"] * (len(columns) + 1))]
    for name, figures in sorted(row.figures.items(), key=lambda item: order(*item)):
        lines.append(line(name, *cells_of(row, name, figures, cores), figures.note))
    return lines


def order(name: str, figures: Figures) -> tuple[bool, float]:
    """Return the order of the table: FlashCodec, then by time, then those that failed."""
    return name != "FlashCodec", statistics.median(figures.walls) if figures.walls else float("inf")


def cells_of(row: RowResult, name: str, figures: Figures, cores: int) -> list[str]:
    if not figures.walls:
        return [figures.failure or "", *[""] * 6]
    ratio = spread(row.ratios(name), digits) if "FlashCodec" in row.figures and name != "FlashCodec" else ""
    peak = (
        "" if figures.peak is None else f"{figures.peak / 1e6:.0f} (handed out: {(figures.handed_out or 0) / 1e6:.0f})"
    )
    wall = spread(figures.walls, digits) + (" once" if figures.slow else "")
    return [wall, ratio, spread(figures.cpus, digits), *over_floor(row, figures, cores), peak, verdict(row, figures)]


def verdict(row: RowResult, figures: Figures) -> str:
    if figures.failure is not None:
        return f"then {figures.failure}"
    if figures.difference is not None:
        return figures.difference
    if figures.wrong is None:
        return ""
    return f"**{figures.wrong} of {row.asked} wrong**" if figures.wrong else "all right"


def over_floor(row: RowResult, figures: Figures, cores: int) -> tuple[str, str]:
    walls = [wall * cores for wall in figures.walls]
    return spread(paired(figures.cpus, row.floors.cpus), digits), spread(paired(walls, row.floors.cpus), digits)


def line(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def draw_times(path: Path, rows: list[RowResult], with_floor: bool) -> None:
    """Draw for each row a bar a contestant: the median time, with the lowest and highest; and perhaps the floor."""
    figure, axes = subplots(rows)
    for axis, row in zip(axes, rows, strict=False):
        for place, (name, figures) in enumerate(bars(row)):
            if not figures.walls:
                axis.text(0, place, f" {figures.failure}"[:60], va="center", fontsize=6, color="tab:red")
                continue
            middle = statistics.median(figures.walls)
            reach = [[middle - min(figures.walls)], [max(figures.walls) - middle]]
            color = "tab:orange" if name == "FlashCodec" else "tab:blue" if figures.right else "tab:red"
            axis.barh(place, middle, xerr=reach, color=color, error_kw={"linewidth": 0.8})
            axis.text(
                middle, place, "" if figures.right else "  wrong frames", va="center", fontsize=6, color="tab:red"
            )
        if with_floor and row.floors.walls:
            axis.axvline(statistics.median(row.floors.walls), color="black", linestyle="--", linewidth=1)
        axis.set_xlabel("wall seconds" + ("; dashed: the floor" if with_floor else ""), fontsize=7)
    save(figure, path)


def draw_floor(path: Path, rows: list[RowResult]) -> None:
    """Draw for each row the contestants' CPU seconds beside those that the decoder itself needs."""
    figure, axes = subplots(rows)
    for axis, row in zip(axes, rows, strict=False):
        for place, (name, figures) in enumerate(bars(row)):
            if figures.cpus:
                axis.barh(
                    place, statistics.median(figures.cpus), color="tab:orange" if name == "FlashCodec" else "tab:blue"
                )
        if row.floors.cpus:
            axis.axvline(statistics.median(row.floors.cpus), color="black", linestyle="--", linewidth=1)
        axis.set_xlabel("CPU seconds; dashed: the floor", fontsize=7)
    save(figure, path)


def bars(row: RowResult) -> list[tuple[str, Figures]]:
    """Return the bars from the top of a plot down: FlashCodec, then by time."""
    return sorted(row.figures.items(), key=lambda item: order(*item), reverse=True)


def subplots(rows: list[RowResult]) -> tuple[Any, list[Any]]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(2, len(rows))
    lines = -(-len(rows) // columns)
    figure, grid = pyplot.subplots(lines, columns, figsize=(6 * columns, 2.4 * lines), squeeze=False)
    axes = list(grid.ravel())
    for axis in axes[len(rows) :]:
        axis.set_axis_off()
    for axis, row in zip(axes, rows, strict=False):
        axis.set_title(row.title, loc="left", fontsize=9)
        names = [name for name, _ in bars(row)]
        axis.set_yticks(range(len(names)), names, fontsize=7)
        axis.set_ylim(-0.6, len(names) - 0.4)
        axis.tick_params(axis="x", labelsize=7)
    return figure, axes


def save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def write(document: dict[str, Any], folder: Path) -> None:
    """Write decode.md and the pictures from the document, which decode.json holds."""
    (folder / "decode.md").write_text(markdown(document))
    draw(document, folder)


def draw(document: dict[str, Any], folder: Path) -> None:
    """Draw decode.png, and of cores decode-floor.png."""
    rows, on_gpu = measured(document), document.get("device") == "cuda"
    if rows:
        draw_times(folder / "decode.png", rows, on_gpu)
    if rows and not on_gpu:
        draw_floor(folder / "decode-floor.png", rows)


def main(folder: Annotated[Path, typer.Argument(help="Folder of decode.json")] = RESULTS) -> None:
    """Write the tables and pictures again."""
    write(json.loads((folder / "decode.json").read_text()), folder)


if __name__ == "__main__":
    typer.run(main)
