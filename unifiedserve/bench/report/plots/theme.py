"""Share colours that all can tell apart, and the way into a page. Pages are light or dark."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from unifiedserve.bench.records import Phase, Record

# the palette of Okabe and Ito (Color Universal Design, 2008), less black and, for lines, yellow
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
STYLES = ("-", "--", ":", "-.")
PHASE_COLOURS: dict[Phase, str] = {
    "queue": "#BBBBBB",
    "fetch": "#F0E442",
    "analyse": "#CC79A7",
    "vision": "#D55E00",
    "encode": "#0072B2",
    "ep-pull": "#7A0177",
    "prefill-queue": "#999999",
    "prefill": "#E69F00",
    "pd-pull": "#F768A1",
    "handoff": "#56B4E9",
    "decode": "#009E73",
}
MISSED = "#D55E00"
INK = "#010203"  # stands for the page's colour of text
WIDTH = 9.6  # inches
LONG_TAIL = 20  # an axis is logarithmic where the largest value is so many times the smallest
POINTS = 600  # of a curve

_SETTINGS: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.18,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
} | dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color"), INK)


def drawing() -> Any:
    """Return a context in which figures are made and written in the page's style."""
    return matplotlib.rc_context(_SETTINGS)


def new_figure(height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """Return a page-wide figure, `height` inches high, and its axes, an array of [rows, columns]."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def as_svg(figure: Figure, name: str) -> str:
    """Return a figure as an SVG element for a page. Text is text, ink is the page's, ids begin again with `name`."""
    with matplotlib.rc_context({"svg.hashsalt": name}):
        file = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, dpi=150, metadata=nothing)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    return text.replace(INK, "currentColor")


def line_styles(labels: Sequence[str]) -> dict[str, Mapping[str, str]]:
    """Return a colour for each label, and another kind of line where colours repeat."""
    return {
        label: {
            "color": COLOURS[place % len(COLOURS)],
            "linestyle": STYLES[place // len(COLOURS) % len(STYLES)],
        }
        for place, label in enumerate(labels)
    }


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Put one legend under all axes."""
    columns = max(1, min(len(labels), 130 // (max(map(len, labels), default=0) + 8)))
    figure.legend(handles, labels, loc="outside lower left", ncols=columns)


def scale_tail(axis: Any, values: Sequence[float]) -> None:
    """Make the axis of values logarithmic if they have a long tail. Plain numbers are its labels."""
    there = [value for value in values if value > 0]
    if len(there) == len(values) and there and max(there) > LONG_TAIL * min(there):
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(there) < 10 * LONG_TAIL * min(there) else (1,)))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.xaxis.set_minor_formatter(lambda value, _: "")
    else:
        axis.set_xlim(left=0)


def thinned(count: int, most: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return at most `most` of the numbers of `count` things, evenly spread, both ends included."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)) if count else np.arange(0)


def in_order(records: Sequence[Record], most: int) -> list[Record]:
    """Return at most so many records, by when they were due."""
    ordered = sorted(records, key=lambda record: (record.due, record.request, record.turn))
    return [ordered[place] for place in thinned(len(ordered), most)]
