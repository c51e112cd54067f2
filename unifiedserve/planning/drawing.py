"""Draw a plan: attainment over rate of the first placements, and what more devices bring."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unifiedserve.bench.metrics.attainment import SHARE
from unifiedserve.bench.report.plots import theme
from unifiedserve.planning.plan import Plan

_HEIGHT = 3.6  # inches


def draw(plan: Plan, path: Path) -> None:
    """Write the picture, whose kind is told by the path's suffix (.svg, .png, .pdf)."""
    labels = [choice.label for choice in plan.choices]
    styles = theme.line_styles(labels)
    with theme.drawing():
        figure, axes = theme.new_figure(_HEIGHT, 1, 2 if plan.devices > 1 else 1)
        figure.set_facecolor("white")
        if plan.objective == "goodput":
            _draw_attainment(axes[0, 0], plan, styles)
        else:
            _draw_throughput(axes[0, 0], plan, styles)
        if plan.devices > 1:
            _draw_front(axes[0, 1], plan)
        lines = [axes[0, 0].plot([], [], **styles[label])[0] for label in labels]
        theme.legend_below(figure, lines, labels)
        figure.savefig(path, dpi=150)


def _draw_attainment(axis: Any, plan: Plan, styles: Mapping[str, Mapping[str, str]]) -> None:
    for choice in plan.choices:
        points = [(point.rate, point.attainment) for point in choice.curve]
        points = sorted([*points, (choice.value, choice.seen.attainment)])
        axis.plot(*zip(*points, strict=True), marker="o", markersize=3, **styles[choice.label])
    axis.axhline(SHARE, color=theme.INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axis.set_ylim(-0.03, 1.03)
    axis.set_xlim(left=0)
    axis.set_xlabel("requests a second")
    axis.set_title("requests that hold their targets")


def _draw_throughput(axis: Any, plan: Plan, styles: Mapping[str, Mapping[str, str]]) -> None:
    for place, choice in enumerate(plan.choices):
        axis.barh(place, choice.value, color=styles[choice.label]["color"])
    axis.set_yticks([])
    axis.invert_yaxis()
    axis.set_xlabel("requests a second")
    axis.set_title("requests completed when all wait")


def _draw_front(axis: Any, plan: Plan) -> None:
    counts, values = [each.devices for each in plan.front], [each.value for each in plan.front]
    axis.plot(counts, values, "o--", color=theme.COLOURS[0])
    axis.set_xlim(0.5, plan.devices + 0.5)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("devices")
    axis.set_title("the most requests a second")
