"""Targets, how many requests hold them, and the rate up to which enough do."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from unifiedserve.scheduling.simulation import Arrival

LEAST = 0.9  # of requests that hold their targets, at a system's goodput
_LOST = 0.6  # share of requests below which a higher rate need not be tried

Tokens = Mapping[int, Sequence[float]]
Point = tuple[float, float]


class Target(NamedTuple):
    """Seconds to the first token, and those between two that a part of a request's gaps keep to.

    The part is HydraInfer's (§2.3); 0 means their mean (EPD §5).
    """

    ttft: float
    tbt: float
    part: float = 0.9

    def held(self, arrival: Arrival, tokens: Sequence[float]) -> bool:
        """Tell whether a request held it."""
        return ttft(arrival, tokens) <= self.ttft and self._between(tokens) <= self.tbt

    def _between(self, tokens: Sequence[float]) -> float:
        between = gaps(tokens)
        return (percentile(between, self.part) if self.part else fmean(between)) if between else 0.0


def ttft(arrival: Arrival, tokens: Sequence[float]) -> float:
    """Return the seconds from a request's arrival to its first token; infinity without one."""
    return tokens[0] - arrival.ticket.arrival if tokens else math.inf


def gaps(tokens: Sequence[float]) -> list[float]:
    """Return the seconds between tokens."""
    return [after - before for before, after in pairwise(tokens)]


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value that a part of all does not exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def attainment(arrivals: Sequence[Arrival], tokens: Tokens, target: Target) -> float:
    """Return the part of requests that held a target."""
    return fmean(target.held(each, tokens[each.ticket.uid]) for each in arrivals)


def curve(attained: Callable[[float], float], rates: Sequence[float]) -> list[Point]:
    """Return attainment over ascending rates, up to one at which most requests miss their targets."""
    points: list[Point] = []
    for rate in rates:
        points.append((rate, attained(rate)))
        if points[-1][1] < _LOST:
            break
    return points


def goodput(points: Sequence[Point], least: float = LEAST) -> float:
    """Return the rate at which the attainment falls below the least, between points along a line."""
    if points[0][1] < least:
        return 0.0
    for (rate, before), (higher, after) in pairwise(points):
        if after < least:
            return rate + (higher - rate) * (before - least) / (before - after)
    return points[-1][0]
