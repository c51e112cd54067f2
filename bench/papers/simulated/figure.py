"""A figure as it came out: what is drawn, the paper's numbers beside it, and a text; saved as JSON and PNG."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

COLOURS = ("#1f5fa8", "#c0392b", "#2e8b57", "#8e5ea2", "#e08e0b", "#555555", "#17a2b8", "#a0522d")
WITHIN = 0.2  # of the paper's number


class Claim(msgspec.Struct, frozen=True):
    """A number that the paper's text gives, and what the simulator gives for it; None where the text has words only."""

    what: str
    simulated: float | str
    paper: float | str

    @property
    def off(self) -> float | None:
        """Return how far the simulated number is from the paper's, as a part of it."""
        if isinstance(self.simulated, str) or isinstance(self.paper, str) or not self.paper:
            return None
        return self.simulated / self.paper - 1


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """Lines over numbers, or bars over names (lists of (name, height) then). `marks` are the paper's values of y."""

    title: str
    x: str
    y: str
    lines: dict[str, list[tuple[float | str, float]]]
    marks: dict[str, float] = {}
    kind: str = "lines"
    log: bool = False


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure or table of a paper."""

    name: str
    paper: str
    shows: str
    panels: list[Panel] = []
    claims: list[Claim] = []
    note: str


def save(figure: Figure, folder: Path) -> list[Path]:
    """Write the figure's numbers and its picture; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = folder / f"{figure.name}.json"
    numbers.write_bytes(msgspec.json.format(msgspec.json.encode(_rounded(figure))) + b"\n")
    picture = folder / f"{figure.name}.png"
    draw(picture, msgspec.json.decode(numbers.read_bytes(), type=Figure))
    return [numbers, picture] if figure.panels else [numbers]


def _rounded(figure: Figure) -> Any:
    """Return the figure as plain data with numbers of four digits."""

    def short(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.4g}")
        if isinstance(value, dict):
            return {key: short(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [short(each) for each in value]
        return value

    return short(msgspec.to_builtins(figure))


def draw(path: Path, figure: Figure) -> None:
    """Draw the panels; a table has none."""
    if not figure.panels:
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(4, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    drawn, axes = pyplot.subplots(rows, columns, figsize=(max(7.5, 1 + 3.6 * columns), 0.9 + 2.9 * rows), squeeze=False)
    for axis, panel in zip(axes.ravel(), figure.panels, strict=False):
        (_draw_bars if panel.kind == "bars" else _draw_lines)(axis, panel)
        axis.set_title(panel.title, loc="left", fontsize=9)
        axis.set_xlabel(panel.x, fontsize=8)
        axis.set_ylabel(panel.y, fontsize=8)
        axis.tick_params(labelsize=7)
        axis.legend(fontsize=6, frameon=False)
    for axis in axes.ravel()[len(figure.panels) :]:
        axis.axis("off")
    drawn.suptitle(f"{figure.paper}, simulated: {figure.shows}", fontsize=9, x=0.01, ha="left")
    drawn.tight_layout()
    drawn.savefig(path, dpi=100)
    pyplot.close(drawn)


def _draw_lines(axis: Any, panel: Panel) -> None:
    for number, (name, points) in enumerate(panel.lines.items()):
        axis.plot(*zip(*points, strict=True), "o-", ms=3, color=COLOURS[number % len(COLOURS)], label=name)
    for name, value in panel.marks.items():
        axis.axhline(value, color="black", ls=":", lw=0.9, label=name)
    if panel.log:
        axis.set_xscale("log", base=2)
    axis.set_ylim(bottom=0)


def _draw_bars(axis: Any, panel: Panel) -> None:
    places = list(dict.fromkeys(place for points in panel.lines.values() for place, _ in points))
    width = 0.8 / len(panel.lines)
    for number, (name, points) in enumerate(panel.lines.items()):
        left = [places.index(place) + (number - (len(panel.lines) - 1) / 2) * width for place, _ in points]
        hatch = "//" if "paper" in name else None
        colour = "#bbbbbb" if hatch else COLOURS[number % len(COLOURS)]
        axis.bar(left, [height for _, height in points], width, color=colour, hatch=hatch, label=name)
    for name, value in panel.marks.items():
        axis.axhline(value, color="black", ls=":", lw=0.9, label=name)
    axis.set_xticks(range(len(places)), places, fontsize=6, rotation=30 if max(map(len, map(str, places))) > 6 else 0)


def claims_table(figures: Sequence[Figure]) -> str:
    """Return a table in Markdown of all numbers beside the papers'."""
    rows = ["| figure | what | simulated | paper | |", "| --- | --- | --- | --- | --- |"]
    for figure in figures:
        rows += [
            f"| {figure.paper} | {claim.what} | {_cell(claim.simulated)} | {_cell(claim.paper)} | {_verdict(claim)} |"
            for claim in figure.claims
        ]
    return "\n".join(rows)


def _cell(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"


def _verdict(claim: Claim) -> str:
    off = claim.off
    if off is None:
        return ""
    return f"{off:+.0%}" if abs(off) <= WITHIN else f"**{off:+.0%}**"
