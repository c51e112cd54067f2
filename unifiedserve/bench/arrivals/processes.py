"""Define processes of arrival times.

Each is a value: the same one with the same seed gives the same times to the last bit.
"""

from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from unifiedserve.bench.arrivals.seeds import stream

Times = npt.NDArray[np.float64]  # seconds after the start, never falling


class ClosedLoop(msgspec.Struct, frozen=True):
    """Let so many users send their next request when the last answer ended. It has no times of its own."""

    users: int


class OpenLoop(Protocol):
    """Send requests at their times, however the server fares."""

    def times(self, count: int, seed: int) -> Times:
        """Return when the first `count` requests are due."""


class Constant(msgspec.Struct, frozen=True):
    """Send `rate` requests a second, evenly, the first at once."""

    rate: float

    def times(self, count: int, seed: int) -> Times:
        return np.arange(count) / self.rate


class Poisson(msgspec.Struct, frozen=True):
    """Send `rate` requests a second on average, each independent of the others."""

    rate: float

    def times(self, count: int, seed: int) -> Times:
        return np.cumsum(stream(seed, "arrivals").exponential(1 / self.rate, count))


class Gamma(msgspec.Struct, frozen=True):
    """Send `rate` requests a second on average, with gamma-distributed gaps. Their deviation is `cv` times their mean.

    One is Poisson; more comes in bursts, less is more even.
    """

    rate: float
    cv: float

    def times(self, count: int, seed: int) -> Times:
        gaps = stream(seed, "arrivals").gamma(self.cv**-2, self.cv**2 / self.rate, count)
        return np.cumsum(gaps)
