"""Summarise runs at several rates: attainment over rate, and goodput."""

from collections.abc import Sequence
from statistics import mean

from unifiedserve.bench.metrics.attainment import Goodput, goodput
from unifiedserve.bench.report.comparison import Group

_CLOSED = "closed"  # the kind of arrivals that users make who wait for their answers
Point = tuple[float, list[float]]  # a rate in requests a second, and the attainment of each round


def rate_points(groups: Sequence[Group]) -> dict[str, list[Point]]:
    """Return for each name its rates, rising, with the attainment of each round.

    Closed loops have none: how often their users ask follows from the answers.
    """
    points: dict[str, list[Point]] = {}
    for group in groups:
        if group.arrivals.partition(":")[0].strip().lower() == _CLOSED:
            continue
        rates = [summary.offered for summary in group.summaries if summary.offered is not None]
        shares = [summary.attainment for summary in group.summaries if summary.attainment is not None]
        if rates and shares:
            points.setdefault(group.name, []).append((mean(rates), shares))
    return {name: sorted(some) for name, some in points.items()}


def goodput_of(points: Sequence[Point]) -> Goodput | None:
    """Return the goodput by the mean attainment of the rounds at each rate."""
    return goodput((rate, mean(shares)) for rate, shares in points)


def tell_goodput(points: Sequence[Point]) -> str:
    """Return the goodput in words."""
    found = goodput_of(points)
    if found is None:
        return f"goodput below {points[0][0]:.3g}/s"
    return f"goodput {'at least ' if found.beyond else ''}{found.rate:.3g}/s"
