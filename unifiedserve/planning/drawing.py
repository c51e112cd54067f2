"""A plan as a picture: attainment over rate of the first placements, and what more devices bring."""

from pathlib import Path

from unifiedserve.bench.metrics.attainment import SHARE
from unifiedserve.bench.report.plots import theme
from unifiedserve.planning.plan import Plan

_PAPER, _HEIGHT = "white", 3.6


def draw(plan: Plan, path: Path) -> None:
    """Write the picture, whose kind is told by the path's suffix (.svg, .png, .pdf)."""
    labels = [choice.label for choice in plan.choices]
    styles = theme.line_styles(labels)
    with theme.drawing():
        figure, axes = theme.new_figure(_HEIGHT, 1, 2)
        figure.set_facecolor(_PAPER)
        rates, devices = axes[0]
        for choice in plan.choices:
            points = sorted((point.rate, point.attainment) for point in choice.curve)
            points = sorted([*points, (choice.value, choice.seen.attainment)])
            rates.plot(*zip(*points, strict=True), marker="o", markersize=3, **styles[choice.label])
        rates.axhline(SHARE, color=theme.INK, linewidth=0.8, linestyle=(0, (4, 3)))
        rates.set_ylim(-0.03, 1.03)
        rates.set_xlim(left=0)
        rates.set_xlabel("requests a second")
        rates.set_title("requests that hold their targets")
        counts, values = [each.devices for each in plan.front], [each.value for each in plan.front]
        devices.step([*counts, plan.devices], [*values, values[-1]], where="post", color=theme.COLOURS[0])
        devices.plot(counts, values, "o", color=theme.COLOURS[0])
        devices.set_xlim(0.5, plan.devices + 0.5)
        devices.set_ylim(bottom=0)
        devices.xaxis.get_major_locator().set_params(integer=True)
        devices.set_xlabel("devices")
        devices.set_title("the most requests a second")
        lines = [rates.plot([], [], **styles[label])[0] for label in labels]
        theme.legend_below(figure, lines, labels)
        figure.savefig(path, dpi=150)
