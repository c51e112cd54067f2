"""Hold times that were measured again and again. They have medians, lie so far apart, and costs add up to them."""

from collections.abc import Iterable
from statistics import median, quantiles

from unifiedserve.profiling.fitting import fit


class Samples:
    """Hold seconds that work took, by its parts: how much of it there was of each that costs something."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[float, ...], list[float]] = {}

    def __len__(self) -> int:
        return len(self._seconds)

    def add(self, parts: Iterable[float], seconds: float) -> None:
        """Keep one measurement."""
        self._seconds.setdefault(tuple(parts), []).append(seconds)

    def fit(self) -> list[float]:
        """Return what each part costs, so that the sums come close to the medians."""
        return fit(list(self._seconds), [median(seconds) for seconds in self._seconds.values()])

    @property
    def spread(self) -> float:
        """Return the relative spread of measurements of the same work.

        It is the width of their middle half over their median; the median of these.
        """
        repeated = [seconds for seconds in self._seconds.values() if len(seconds) > 1]
        return median(map(spread, repeated)) if repeated else 0.0


def spread(seconds: list[float]) -> float:
    """Return the width of the middle half of measurements, over their median; 0 for a single one."""
    if len(seconds) < 2:
        return 0.0
    first, middle, third = quantiles(seconds, n=4, method="inclusive")
    return (third - first) / middle if middle else 0.0
