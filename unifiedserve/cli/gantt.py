"""Draw the engine's spans as a small Gantt chart in the terminal. They come from its trace."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

_COLOURS = {"vision": "magenta", "encode": "blue", "prefill": "yellow", "decode": "green"}
_QUEUED, _RUNNING, _IDLE = "·", "█", " "


class Bar(NamedTuple):
    """Hold a stage's half-open intervals [start, end), in microseconds.

    They may be those of pages that travel to it.
    """

    stage: str
    queued: list[tuple[float, float]]
    running: list[tuple[float, float]]


def bars_of(spans: Iterable[dict[str, Any]]) -> list[Bar]:
    """Return a bar for each stage with spans, in the trace's order. Before a stage comes the bar of its pages."""
    bars: dict[tuple[int, bool], Bar] = {}
    for span in spans:
        works = span["name"] != "pull"
        bar = bars.setdefault((span["pid"], works), Bar(span["cat"] if works else f"→ {span['cat']}", [], []))
        intervals = bar.queued if span["name"] == "queue" else bar.running
        intervals.append((span["ts"], span["ts"] + span["dur"]))
    return [bar for _, bar in sorted(bars.items())]


def gantt(spans: Iterable[dict[str, Any]], width: int = 60) -> RenderableType:
    """Draw a table with a line a stage: `·` queued, `█` running, and when, in milliseconds from the first event."""
    bars = bars_of(spans)
    if not bars:
        return Text("Nothing has run yet.", "dim")
    intervals = [interval for bar in bars for interval in bar.queued + bar.running]
    start = min(begin for begin, _ in intervals)
    scale = width / (max(end for _, end in intervals) - start or 1.0)

    table = Table(box=None, pad_edge=False)
    table.add_column("stage", no_wrap=True)
    table.add_column(f"timeline ({_QUEUED} queued, {_RUNNING} running)", min_width=width, no_wrap=True)
    for title in ("from ms", "to ms", "busy ms"):
        table.add_column(title, justify="right")
    for bar in bars:
        shown = bar.running or bar.queued
        line = Text(_line(bar, start, scale, width), style=_COLOURS.get(bar.stage, "cyan"))
        times = (min(shown)[0] - start, max(end for _, end in shown) - start, busy(bar.running))
        table.add_row(bar.stage, line, *(f"{time / 1000:.1f}" for time in times))
    return table


def busy(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _line(bar: Bar, start: float, scale: float, width: int) -> str:
    cells = [_IDLE] * width
    for mark, intervals in ((_QUEUED, bar.queued), (_RUNNING, bar.running)):
        for begin, end in intervals:
            first = min(int((begin - start) * scale), width - 1)
            for cell in range(first, min(max(int((end - start) * scale), first + 1), width)):
                cells[cell] = mark
    return "".join(cells)
