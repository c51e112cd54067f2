"""Summarise many values in a few numbers."""

import math
from collections.abc import Iterable

import msgspec
import numpy as np

# Student's t for a two-sided 95 % interval, by degrees of freedom from 1; the normal distribution's beyond
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_NORMAL = 1.960


class Distribution(msgspec.Struct, frozen=True):
    """Summarise `n` values: their mean, percentiles (interpolated linearly, as numpy does) and the largest."""

    n: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


def describe(values: Iterable[float | None]) -> Distribution | None:
    """Return the distribution of the values that are there; None if there are none."""
    there = np.sort([value for value in values if value is not None])  # sorted, so that their order changes no digit
    if not there.size:
        return None
    p50, p90, p95, p99 = (float(value) for value in np.percentile(there, (50, 90, 95, 99)))
    return Distribution(there.size, float(there.mean()), p50, p90, p95, p99, float(there[-1]))


def interval(values: Iterable[float]) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of the mean of several rounds, by Student's t; None of fewer than two."""
    there = np.sort(list(values))
    if there.size < 2:
        return None
    quantile = _T[there.size - 2] if there.size - 2 < len(_T) else _NORMAL
    reach = quantile * float(there.std(ddof=1)) / math.sqrt(there.size)
    return float(there.mean()) - reach, float(there.mean()) + reach
