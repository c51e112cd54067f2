"""The view of a stream's reader while other requests are being worked on, from the arrivals of its tokens."""

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MOMENT = 1e-3  # seconds within which tokens came together
LONG = 5  # a gap this many times the idle one counts as frozen


@dataclass(frozen=True)
class Window:
    """Seconds on the clock of the arrivals: from when the streams are steady, over the videos' arrival, to the
    first token of the last video."""

    steady: float
    start: float
    stop: float

    @property
    def length(self) -> float:
        return self.stop - self.start


def figures(streams: Sequence[Sequence[float]], window: Window) -> dict[str, float]:
    """Return gaps in seconds, rates in tokens a second over all streams, `frozen` as a share of the window (mean).

    Raises ValueError if a stream has no two tokens while it is steady: there is nothing to compare with.
    """
    idle = statistics.median(
        gap for arrivals in streams for gap, _ in gaps(arrivals, Window(0, window.steady, window.start), whole=True)
    )
    before = rate(streams, window.steady, window.start)
    during = rate(streams, window.start, window.stop)
    seen = [list(gaps(arrivals, window)) for arrivals in streams]
    return {
        "idle_gap": idle,
        "worst_gap": max(gap for stream in seen for gap, _ in stream),
        "frozen": statistics.mean(frozen(stream, idle, window) for stream in seen),
        "before": before,
        "during": during,
        "kept": during / before,
        "window": window.length,
    }


def times_per_token(arrivals: Sequence[float]) -> list[float]:
    """Return each later token's time since the arrival before; tokens that came together share it."""
    return [
        (after - before) / count
        for (before, _), (after, count) in itertools.pairwise(together(arrivals))
        for _ in range(count)
    ]


def gaps(arrivals: Sequence[float], window: Window, whole: bool = False) -> Iterator[tuple[float, float]]:
    """Return the length of each gap that reaches into the window (`whole`: lies in it), and of its part inside."""
    for (before, _), (after, _) in itertools.pairwise(together(arrivals)):
        inside = min(after, window.stop) - max(before, window.start)
        if inside > 0 and (not whole or (before >= window.start and after <= window.stop)):
            yield after - before, inside


def together(arrivals: Sequence[float]) -> list[tuple[float, int]]:
    """Group arrivals by time, with the number of tokens: a reader sees those of one moment as one."""
    groups: list[tuple[float, int]] = []
    for time in arrivals:
        if groups and time - groups[-1][0] < MOMENT:
            groups[-1] = (groups[-1][0], groups[-1][1] + 1)
        else:
            groups.append((time, 1))
    return groups


def frozen(seen: list[tuple[float, float]], idle: float, window: Window) -> float:
    """Return the share of the window that lies in long gaps."""
    return sum(inside for gap, inside in seen if gap > LONG * idle) / window.length


def rate(streams: Sequence[Sequence[float]], start: float, stop: float) -> float:
    """Return the tokens a second that arrived in (start, stop]."""
    return sum(start < token <= stop for arrivals in streams for token in arrivals) / (stop - start)
