"""What a reader of a stream sees while other requests are being worked on, from the arrivals of its tokens."""

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
    """Gaps in seconds, rates in tokens a second over all streams, `frozen` a share of the window (mean of streams).

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
    """For each token but the first, the time since those before it; tokens that came together share it."""
    together = [(time, len(list(tokens))) for time, tokens in itertools.groupby(arrivals)]
    return [
        (after - before) / count for (before, _), (after, count) in itertools.pairwise(together) for _ in range(count)
    ]


def gaps(arrivals: Sequence[float], window: Window, whole: bool = False) -> Iterator[tuple[float, float]]:
    """Of each gap that reaches into the window (or, `whole`, lies in it): its length, and that of its part inside."""
    for before, after in itertools.pairwise(arrivals):
        inside = min(after, window.stop) - max(before, window.start)
        if after > before and inside > 0 and (not whole or inside == after - before):
            yield after - before, inside


def frozen(seen: list[tuple[float, float]], idle: float, window: Window) -> float:
    """The share of the window that lies in long gaps."""
    return sum(inside for gap, inside in seen if gap > LONG * idle) / window.length


def rate(streams: Sequence[Sequence[float]], start: float, stop: float) -> float:
    """Tokens a second that arrived in (start, stop]."""
    return sum(start < token <= stop for arrivals in streams for token in arrivals) / (stop - start)
