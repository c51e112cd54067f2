"""Tell which frame is shown when, by TorchCodec's rules."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat

import numpy as np
import numpy.typing as npt

from flashcodec.errors import ArgumentError, ArgumentTypeError, OutOfRangeError

Numbers = npt.NDArray[np.int64]
Seconds = Sequence[float] | npt.NDArray[np.floating[Any]]
Times = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Timeline:
    """Show frames from their times on, `pts_seconds` [n], until the next one is shown; the last until `end`."""

    pts_seconds: Times
    end: float

    @property
    def begin(self) -> float:
        return float(self.pts_seconds[0])

    def at(self, seconds: Seconds) -> Numbers:
        """Return int64 [n], the frames shown at these times, n numbers or a single one.

        Raises OutOfRangeError before the first frame and from the end on, ValueError for what are no numbers.
        """
        times = np.atleast_1d(np.asarray(seconds))
        if times.ndim != 1 or (times.size and times.dtype.kind not in "biuf"):
            raise ValueError(f"Couldn't convert timestamps input to a tensor: no list of seconds, but {seconds!r}")
        times = times.astype(np.float64)  # before they are compared: bounds would be rounded to narrower floats
        bad = ~((times >= self.begin) & (times < self.end))
        if bad.any():
            raise OutOfRangeError(f"Invalid pts in seconds: {times[bad][0]}. {self._bounds}")
        return self._shown(times)

    def between(self, start: float, stop: float) -> Numbers:
        """Return the frames shown in [start, stop), the one on show at the start first; none if that is empty."""
        start, stop = self._checked_range(start, stop)
        if start == stop:
            return np.empty(0, np.int64)
        first = int(self._shown(np.array([start]))[0])
        last = int(np.searchsorted(self.pts_seconds, stop, side="left"))
        return np.arange(first, max(first + 1, last))

    def at_rate(self, start: float, stop: float, fps: float) -> tuple[Times, Numbers]:
        """Return times in [start, stop) every 1 / fps seconds, and the frames shown then.

        There are as many as (stop - start) * fps rounded (half up). Raises ValueError for a range or a rate that makes
        no sense.
        """
        start, stop = self._checked_range(start, stop)
        if not isinstance(fps, SupportsFloat):
            raise ArgumentTypeError(f"fps must be a number, not {fps!r}")
        if not 0 < fps < math.inf:
            raise ArgumentError(f"fps must be positive and finite, got {fps}")
        part, whole = math.modf((stop - start) * fps)
        steps = np.arange(whole + (part >= 0.5), dtype=np.float64)  # half more than the last float before a half is one
        times = start + steps * (1 / fps)  # to the last bit as TorchCodec
        return times, self._shown(times)

    def _shown(self, times: Times) -> Numbers:
        return np.searchsorted(self.pts_seconds, times, side="right").astype(np.int64) - 1

    def _checked_range(self, start: float, stop: float) -> tuple[float, float]:
        """Return both as Python's floats; narrower ones would round what they are compared with."""
        for seconds in (start, stop):
            if not isinstance(seconds, SupportsFloat):
                raise ArgumentTypeError(f"a range of seconds has numbers, not {seconds!r}")
        start, stop = float(start), float(stop)
        if not start <= stop:
            raise ValueError(f"Invalid start seconds: {start} is after the stop seconds, {stop}.")
        if not self.begin <= start < self.end:
            raise ValueError(f"Invalid start seconds: {start}. {self._bounds}")
        if not stop <= self.end:
            raise ValueError(f"Invalid stop seconds: {stop}. It must be less than or equal to {self.end}.")
        return start, stop

    @property
    def _bounds(self) -> str:
        return f"It must be greater than or equal to {self.begin} and must be less than {self.end}."


def nearest(known: Times, times: Times) -> Numbers:
    """Return int64 [n], for each of `times` the place of the nearest in `known`.

    `known` ascends and is not empty. It is the earlier one of two as near.
    """
    after = np.searchsorted(known, times).clip(0, len(known) - 1)
    before = (after - 1).clip(0)
    earlier = times - known[before] <= known[after] - times
    return np.where(earlier, before, after)
