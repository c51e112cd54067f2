"""Define the rows of all tables: what is picked from a summary, its unit, and when it misses what was promised."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from unifiedserve.bench.metrics.attainment import SHARE
from unifiedserve.bench.metrics.distribution import Distribution
from unifiedserve.bench.metrics.summary import Summary

MS, PERCENT = 1e3, 100.0
NOTHING = "–"


@dataclass(frozen=True)
class Row:
    """Define a figure. `scale` turns it into the unit of the label, `held` is the share that it promises has to reach.

    `brief` rows are shown in the terminal.
    """

    label: str
    pick: Callable[[Summary], float | None]
    scale: float = 1.0
    held: Callable[[Summary], float | None] | None = None
    promised: float = SHARE
    brief: bool = False

    def value(self, summary: Summary) -> float | None:
        """Return the figure in the label's unit."""
        value = self.pick(summary)
        return None if value is None else value * self.scale

    def missed(self, summary: Summary) -> bool:
        """Tell whether fewer hold their target than the figure stands for."""
        share = self.held(summary) if self.held else None
        return share is not None and share < self.promised


def _percentiles(
    label: str,
    pick: Callable[[Summary], Distribution | None],
    scale: float = 1.0,
    held: Callable[[Summary], float | None] | None = None,
    brief: Sequence[str] = (),
) -> list[Row]:
    def row(name: str, promised: float | None) -> Row:
        def value(summary: Summary) -> float | None:
            found = pick(summary)
            return None if found is None else float(getattr(found, name))

        judged = held if promised is not None else None
        return Row(f"{label}, {name}", value, scale, judged, promised or SHARE, brief=name in brief)

    promises = {"mean": None, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return [row(name, promised) for name, promised in promises.items()]


TAIL = ("p50", "p90", "p99")
ROWS = [
    Row("requests", lambda summary: summary.requests, brief=True),
    Row("failed", lambda summary: summary.failed, brief=True),
    Row("offered, requests/s", lambda summary: summary.offered, brief=True),
    Row("SLO attainment, %", lambda summary: summary.attainment, PERCENT, lambda s: s.attainment, brief=True),
    Row("TTFT that hold, %", lambda summary: summary.ttft_held, PERCENT, lambda s: s.ttft_held),
    Row("TBT that hold, %", lambda summary: summary.tbt_held, PERCENT, lambda s: s.tbt_held),
    *_percentiles("TTFT, s", lambda summary: summary.ttft, held=lambda s: s.ttft_held, brief=TAIL),
    *_percentiles("TBT, ms", lambda summary: summary.tbt, MS, held=lambda s: s.tbt_held, brief=(*TAIL, "max")),
    *_percentiles("TPOT, ms", lambda summary: summary.tpot, MS, brief=("p50",)),
    *_percentiles("E2E, s", lambda summary: summary.e2e, brief=("p50", "p99")),
    *_percentiles("normalised latency, ms/token", lambda summary: summary.normalised_latency, MS),
    Row("gaps that are stalls: over, ms", lambda summary: summary.stall_limit, MS),
    Row("stalls, % of the streams' time", lambda summary: summary.stall_share, PERCENT, brief=True),
    *_percentiles("stalls of a request, s", lambda summary: summary.stall_time),
    *_percentiles("TTFT, × when alone", lambda summary: summary.ttft_slowdown, brief=("p50", "max")),
    *_percentiles("E2E, × when alone", lambda summary: summary.e2e_slowdown),
    Row("requests/s", lambda summary: summary.request_throughput, brief=True),
    Row("output tokens/s", lambda summary: summary.token_throughput, brief=True),
    Row("video seconds/s", lambda summary: summary.video_throughput or None, brief=True),
    Row("right answers, %", lambda summary: summary.accuracy, PERCENT, brief=True),
    *_percentiles("sent late by the client, ms", lambda summary: summary.send_delay, MS, brief=("p99",)),
]


def present(rows: Sequence[Row], summaries: Sequence[Summary]) -> list[Row]:
    """Return the rows that have a value in at least one of the summaries."""
    return [row for row in rows if any(row.value(summary) is not None for summary in summaries)]


def digits(value: float | None) -> str:
    """Format with about three significant digits; whole numbers as they are."""
    if value is None:
        return NOTHING
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """Format the median, with the lowest and the highest where there are several."""
    if not values:
        return NOTHING
    middle = digits(median(values))
    return middle if len(values) == 1 else f"{middle} ({digits(min(values))}–{digits(max(values))})"
