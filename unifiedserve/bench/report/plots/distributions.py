"""Draw cumulative distributions of latencies."""

from collections.abc import Mapping, Sequence

import numpy as np

from unifiedserve.bench.metrics import latency
from unifiedserve.bench.records import Record
from unifiedserve.bench.report.plots import theme

Curves = Mapping[str, Sequence[Record]]


def draw_distributions(panels: Mapping[str, Curves]) -> str | None:
    """Draw TTFT, TBT and E2E of each curve's records, a row a panel; None if there are no answers."""
    labels = list(dict.fromkeys(label for curves in panels.values() for label in curves))
    if not any(latency.answered(record) for curves in panels.values() for some in curves.values() for record in some):
        return None
    styles = theme.line_styles(labels)
    with theme.drawing():
        figure, axes = theme.new_figure(0.6 + 2.1 * len(panels), len(panels), 3, sharey=True)
        for row, (title, curves) in zip(axes, panels.items(), strict=True):
            for axis, (name, seconds) in zip(row, _latencies(curves).items(), strict=True):
                for label, values in seconds.items():
                    axis.plot(*_cdf(values), drawstyle="steps-post", **styles[label])
                theme.scale_tail(axis, [value for values in seconds.values() for value in values])
                axis.set_title(f"{title}: {name}" if title else name)
            row[0].set_ylabel("share of values")
        for axis in axes[-1]:
            axis.set_xlabel("seconds")
        lines = [axes[0, 0].plot([], [], **styles[label])[0] for label in labels]
        theme.legend_below(figure, lines, labels)
        return theme.as_svg(figure, "distributions")


def _latencies(curves: Curves) -> dict[str, dict[str, list[float]]]:
    complete = {label: [record for record in some if latency.answered(record)] for label, some in curves.items()}
    return {
        "TTFT": {label: [latency.ttft(record) or 0.0 for record in some] for label, some in complete.items()},
        "TBT": {label: [gap for record in some for gap in latency.tbts(record)] for label, some in complete.items()},
        "E2E": {label: [latency.e2e(record) or 0.0 for record in some] for label, some in complete.items()},
    }


def _cdf(values: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return points of the empirical distribution function from 0 to 1. Many are thinned."""
    ordered = np.sort(values)
    shown = theme.thinned(ordered.size, theme.POINTS)
    return ordered[np.append(shown[:1], shown)], np.append(np.zeros(shown[:1].size), (shown + 1) / max(1, ordered.size))
