"""Choose the rate to try next: between one that is served well and one that is not."""

from math import sqrt

_UP, _DOWN = 1 << 10, 1 << 6  # the search goes no further from the first rate than by these factors
_DIGITS = 4  # of rates that are tried


class Bracket:
    """Double or halve the rate until the goal lies between, then bisect geometrically.

    One rate then attains the goal and another does not. Which rates are tried depends on nothing but the first one and
    the outcomes, so servers are tried at the same ones.
    """

    def __init__(self, first: float, precision: float) -> None:
        self._first = first
        self._precision = precision
        self.low: float | None = None  # the highest rate that attains the goal
        self.high: float | None = None  # the lowest that does not

    def next_rate(self) -> float | None:
        """Return the rate to try; None if the two ends are close enough, or one of them is out of reach."""
        if self.low is None and self.high is None:
            return self._first
        if self.high is None:
            assert self.low is not None
            return 2 * self.low if self.low < _UP * self._first else None
        if self.low is None:
            return self.high / 2 if self.high > self._first / _DOWN else None
        middle = float(f"{sqrt(self.low * self.high):.{_DIGITS}g}")
        close = self.high <= (1 + self._precision) * self.low
        return None if close or not self.low < middle < self.high else middle

    def tell(self, rate: float, attained: bool) -> None:
        """Narrow the bracket by the outcome at `rate`."""
        if attained:
            self.low = rate
        else:
            self.high = rate
