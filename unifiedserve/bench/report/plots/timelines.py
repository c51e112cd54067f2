"""Draw requests as lines on the time of a run: their tokens, and their phases."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.patches import Patch

from unifiedserve.bench.metrics.phases import PHASES
from unifiedserve.bench.records import Record
from unifiedserve.bench.report.plots import theme

MOST_LINES = 120  # requests of all panels together, and of each at least
LEAST_LINES = 10
MOST_TICKS = 4000  # as vectors; more are pixels
LINE = 0.12  # inches


def draw_timelines(panels: Mapping[str, Sequence[Record]]) -> str | None:
    """Draw each request as a line from its due time, with a tick a token. None if nothing was sent."""
    shown = {title: theme.in_order(records, _most_lines(panels)) for title, records in panels.items() if records}
    if not shown:
        return None
    kinds = sorted({record.kind for records in shown.values() for record in records})
    colours = {kind: style["color"] for kind, style in theme.line_styles(kinds).items()}
    with theme.drawing():
        figure, axes = _lines(shown, panels)
        for axis, records in zip(axes, shown.values(), strict=True):
            axis.hlines(*_waits(records), color=theme.INK, alpha=0.35, linewidth=0.7)
            for kind in kinds:
                times, lines = _ticks(records, kind)
                axis.plot(times, lines, color=colours[kind], linewidth=0.8, rasterized=times.size > 3 * MOST_TICKS)
            failed = [(record.ended, line) for line, record in enumerate(records) if record.error is not None]
            axis.plot([at for at, _ in failed], [line for _, line in failed], "x", color=theme.MISSED, markersize=4)
        axes[0].set_xlim(left=0)
        handles: list[Any] = [Patch(color=colours[kind]) for kind in kinds]
        failure = axes[0].plot([], [], "x", color=theme.MISSED)[0]
        theme.legend_below(figure, [*handles, failure], [*kinds, "failed"])
        return theme.as_svg(figure, "timelines")


def draw_gantt(panels: Mapping[str, Sequence[Record]]) -> str | None:
    """Draw the phases of each request end to end, from when it was due; None if nothing was traced."""
    traced = {title: [record for record in records if record.phases] for title, records in panels.items()}
    shown = {title: theme.in_order(records, _most_lines(panels)) for title, records in traced.items() if records}
    if not shown:
        return None
    with theme.drawing():
        figure, axes = _lines(shown, traced)
        for axis, records in zip(axes, shown.values(), strict=True):
            lefts = np.array([record.due for record in records])
            for phase in PHASES:
                widths = np.array([record.phases.get(phase, 0.0) for record in records])
                axis.barh(range(len(records)), widths, 0.8, lefts, color=theme.PHASE_COLOURS[phase], linewidth=0)
                lefts = lefts + widths
            axis.plot([record.ended for record in records], range(len(records)), "|", color=theme.INK, markersize=6)
        axes[0].set_xlim(left=0)
        there = [phase for phase in PHASES if any(phase in record.phases for some in shown.values() for record in some)]
        handles: list[Any] = [Patch(color=theme.PHASE_COLOURS[phase]) for phase in there]
        end = axes[0].plot([], [], "|", color=theme.INK, markersize=8)[0]
        theme.legend_below(figure, [*handles, end], [*there, "end of the answer"])
        return theme.as_svg(figure, "gantt")


def _most_lines(panels: Mapping[str, Sequence[Record]]) -> int:
    return min(60, max(LEAST_LINES, MOST_LINES // len(panels)))


def _lines(shown: Mapping[str, Sequence[Record]], of: Mapping[str, Sequence[Record]]) -> tuple[Any, Any]:
    """Return a figure with a panel for each title. Each request is a line, the first on top."""
    heights = [0.7 + LINE * len(records) for records in shown.values()]
    figure, axes = theme.new_figure(
        0.8 + sum(heights), len(shown), 1, sharex=True, gridspec_kw={"height_ratios": heights}
    )
    for axis, (title, records) in zip(axes[:, 0], shown.items(), strict=True):
        part = "" if len(records) == len(of[title]) else f": {len(records)} of {len(of[title]):,} requests"
        axis.set_title(f"{title}{part}")
        axis.set_ylim(len(records) - 0.3, -0.7)
        axis.set_yticks([])
        axis.set_ylabel("requests")
    axes[-1, 0].set_xlabel("seconds from the start of the run")
    return figure, axes[:, 0]


def _waits(records: Sequence[Record]) -> tuple[list[int], list[float], list[float]]:
    """Return lines, beginnings and ends of the time until the first token.

    Without a token it is the time until the end.
    """
    ends = [record.token_times[0] if record.token_times else max(record.due, record.ended) for record in records]
    return list(range(len(records))), [record.due for record in records], ends


def _ticks(records: Sequence[Record], kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of a kind as one broken line, x and y."""
    tokens = [(time, line) for line, record in enumerate(records) if record.kind == kind for time in record.token_times]
    times, lines = np.array(tokens, np.float64).reshape(-1, 2).T
    gaps = np.full(times.size, np.nan)
    return np.stack([times, times, gaps], 1).ravel(), np.stack([lines - 0.4, lines + 0.4, gaps], 1).ravel()
