"""Draw SLO attainment over the rate of arrivals, and over the scale of the targets."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np

from unifiedserve.bench.metrics.attainment import SHARE, attainment_over_scale
from unifiedserve.bench.metrics.distribution import interval
from unifiedserve.bench.records import Record
from unifiedserve.bench.report.comparison import Group
from unifiedserve.bench.report.plots import theme
from unifiedserve.bench.report.rates import goodput_of, rate_points, tell_goodput
from unifiedserve.bench.slo import Slo

SCALES = np.geomspace(1 / 8, 8, 97)


def draw_attainment_over_rate(groups: Sequence[Group]) -> str | None:
    """Draw a line a name, with 95 % intervals where there are rounds; None if nothing ran at two rates."""
    curves = rate_points(groups)
    if not any(len(points) > 1 for points in curves.values()):
        return None
    styles = theme.line_styles(list(curves))
    with theme.drawing():
        figure, axes = theme.new_figure(3.4)
        axis = axes[0, 0]
        for name, points in curves.items():
            rates, shares = [rate for rate, _ in points], [mean(of) for _, of in points]
            reach = np.transpose([_reach(of) for _, of in points])
            axis.errorbar(rates, shares, yerr=reach, marker="o", capsize=3, **styles[name])
            if found := goodput_of(points):
                axis.axvline(found.rate, linewidth=0.8, alpha=0.7, **styles[name])
        _goal(axis)
        axis.set_xlim(left=0)
        axis.set_xlabel("requests a second")
        lines = [axis.plot([], [], marker="o", **styles[name])[0] for name in curves]
        theme.legend_below(figure, lines, [f"{name}: {tell_goodput(points)}" for name, points in curves.items()])
        return theme.as_svg(figure, "attainment-over-rate")


def draw_attainment_over_scale(curves: Mapping[str, Sequence[Record]], slo: Slo) -> str | None:
    """Draw a line for each of the records over the scale of the targets.

    It goes from an eighth to eight times; None if there are no targets.
    """
    shares = {label: attainment_over_scale(records, slo, list(SCALES)) for label, records in curves.items() if records}
    if not shares or slo.asks_nothing:
        return None
    styles = theme.line_styles(list(curves))
    with theme.drawing():
        figure, axes = theme.new_figure(3.4)
        axis = axes[0, 0]
        lines = [axis.plot(SCALES, of, drawstyle="steps-post", **styles[label])[0] for label, of in shares.items()]
        axis.axvline(1, color=theme.INK, linewidth=0.8)
        _goal(axis)
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g} ×")
        axis.set_xlabel("scale of the targets (to the left they are tighter)")
        theme.legend_below(figure, lines, list(shares))
        return theme.as_svg(figure, "attainment-over-scale")


def _goal(axis: Any) -> None:
    axis.axhline(SHARE, color=theme.INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axis.set_ylim(-0.03, 1.03)
    axis.set_ylabel("SLO attainment")


def _reach(shares: Sequence[float]) -> tuple[float, float]:
    """Return how far the interval of the rounds' mean reaches down and up. A share bounds it."""
    low, high = interval(shares) or (mean(shares), mean(shares))
    return mean(shares) - max(0.0, low), min(1.0, high) - mean(shares)
