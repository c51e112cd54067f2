"""Parse distributions of lengths, sizes and times, as lognormal:median=300,p95=1200,max=4000."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from unifiedserve.bench.arrivals.spec import Spec, finite, split
from unifiedserve.bench.arrivals.traces.lines import table
from unifiedserve.errors import ConfigError

FORMS = (
    "300, uniform:100,to=500, lognormal:median=300,p95=1200, exponential:30, pareto:100,alpha=1.5, geometric:3, "
    "or cdf:FILE,column=VALUE,…; each with min= and max= where wanted"
)
_P95 = 1.6448536269514722  # the normal distribution's
_LIMITS = ("min", "max")

Values = npt.NDArray[np.float64]
Quantile = Callable[[Values], Values]  # of shares in [0, 1)


class Distribution:
    """Hold a distribution by its quantile function, cut off at `low` and `high`. `text` is how it was written."""

    def __init__(self, text: str, quantile: Quantile, low: float = 0.0, high: float = math.inf) -> None:
        self.text = text
        self._quantile = quantile
        self._low, self._high = low, high

    def quantiles(self, shares: Values) -> Values:
        """Return the values below which these shares in [0, 1) lie."""
        return np.clip(self._quantile(shares), self._low, self._high)

    def draw(self, rng: np.random.Generator) -> float:
        """Draw a value. Raises ConfigError if it is beyond all numbers."""
        with np.errstate(over="ignore"):
            value = float(self.quantiles(rng.random(1))[0])
        if math.isinf(value):
            raise ConfigError(f"{self.text}: its values are beyond all numbers: give it a max")
        return value

    def whole(self, rng: np.random.Generator) -> int:
        """Draw a value and round it."""
        return round(self.draw(rng))


def distribution(text: str | float) -> Distribution:
    """Return the distribution that a text describes; a number alone is always the same value.

    Raises ConfigError if it has none of the FORMS, or a number in it makes no sense.
    """
    text = str(text)
    spec = split(text)
    family = _FAMILIES.get(spec.name)
    if family is None:
        value = finite(f"{text!r} is no distribution: write {FORMS}: it", text)
        return Distribution(text, lambda shares: np.full_like(shares, value))
    low = spec.number("min", 0.0, positive=False)
    high = spec.number("max") if "max" in spec.options else math.inf
    if high < low:
        raise ConfigError(f"{text}: max is below min")
    return Distribution(text, family(spec), low, high)


def _uniform(spec: Spec) -> Quantile:
    spec.allow(("to", *_LIMITS))
    low, high = spec.number(positive=False), spec.number("to")
    if high < low:
        raise ConfigError(f"{spec.text}: to is below the lowest value")
    return lambda shares: low + (high - low) * shares


def _lognormal(spec: Spec) -> Quantile:
    spec.allow(("median", "p95", *_LIMITS))
    median, p95 = spec.number("median"), spec.number("p95")
    if p95 < median:
        raise ConfigError(f"{spec.text}: p95 is below the median")
    sigma = math.log(p95 / median) / _P95
    return lambda shares: median * np.exp(sigma * _normal(shares))


def _exponential(spec: Spec) -> Quantile:
    spec.allow(_LIMITS)
    mean = spec.number()
    return lambda shares: -mean * np.log1p(-shares)


def _pareto(spec: Spec) -> Quantile:
    """Return the smallest value and the tail's index: the share above x is (smallest / x) ** alpha."""
    spec.allow(("alpha", *_LIMITS))
    smallest, alpha = spec.number(), spec.number("alpha")
    return lambda shares: smallest * (1 - shares) ** (-1 / alpha)


def _geometric(spec: Spec) -> Quantile:
    """Return how often until it ends, at least once, given the mean: turns of a conversation."""
    spec.allow(_LIMITS)
    mean = spec.number()
    if mean < 1:
        raise ConfigError(f"{spec.text}: the mean is at least 1")
    return lambda shares: np.ones_like(shares) if mean == 1 else 1 + np.floor(np.log1p(-shares) / np.log1p(-1 / mean))


def _cdf(spec: Spec) -> Quantile:
    """Return percentiles in a table.

    `percentile` goes from 0 to 100, and the values are in its last column, straight between them. Other options choose
    among the rows: cdf:FILE,quantity=context_tokens,requests=image.
    """
    choose = {key: value for key, value in spec.options.items() if key not in _LIMITS}
    percentiles, values = _percentiles(spec.text, Path(spec.value).expanduser(), choose)
    return lambda shares: np.interp(shares * 100, percentiles, values)


def _percentiles(text: str, path: Path, choose: Mapping[str, str]) -> tuple[list[float], list[float]]:
    points: list[tuple[float, float]] = []
    for cells in table(path):
        columns = cells.columns
        absent = [column for column in ("percentile", *choose) if column not in columns]
        if absent:
            raise ConfigError(f"{path}: no column {', '.join(absent)}, but {', '.join(columns)}")
        if all(cells[column] == value for column, value in choose.items()):
            points.append((cells.number("percentile"), cells.number(columns[-1])))
    if not points:
        raise ConfigError(f"{text}: {path} has no such rows")
    if points != sorted(points):
        raise ConfigError(f"{text}: percentiles and values of {path} must rise: choose the rows of one quantity")
    return [percentile for percentile, _ in points], [value for _, value in points]


def _normal(shares: Values) -> Values:
    """Return the standard normal distribution's quantiles."""
    inverse = NormalDist().inv_cdf
    return np.array([inverse(min(max(share, 1e-12), 1 - 1e-12)) for share in shares.tolist()])


_FAMILIES: dict[str, Callable[[Spec], Quantile]] = {
    "uniform": _uniform,
    "lognormal": _lognormal,
    "exponential": _exponential,
    "pareto": _pareto,
    "geometric": _geometric,
    "cdf": _cdf,
}
