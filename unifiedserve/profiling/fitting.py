"""Fit costs that add up to measured times."""

from collections.abc import Sequence

import numpy
import numpy.typing

_FITS = 4  # each weighted by the one before
_LEAST = 1e-9  # seconds

Matrix = numpy.typing.NDArray[numpy.float64]


def fit(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Return what each column costs, by least squares of relative errors. None is less than nothing.

    Errors are in proportion to what is fitted, not to what was measured, which would favour the shortest times.
    """
    parts, times = numpy.array(rows, dtype=float), numpy.maximum(seconds, _LEAST)
    weights = times
    for _ in range(_FITS):
        costs = _least_squares(parts / weights[:, None], times / weights)
        weights = numpy.maximum(parts @ costs, _LEAST)
    return [float(cost) for cost in costs]


def _least_squares(rows: Matrix, seconds: Matrix) -> Matrix:
    costs, used = numpy.zeros(rows.shape[1]), numpy.arange(rows.shape[1])
    while True:
        costs[used] = numpy.linalg.lstsq(rows[:, used], seconds, rcond=None)[0]
        if costs.min() >= 0:
            return costs
        used = used[costs[used] > 0]
        costs[:] = 0
