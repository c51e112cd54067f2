"""Measure what was done and what was asked for, a second."""

from collections.abc import Iterable

import numpy as np

from unifiedserve.bench.metrics.latency import answered
from unifiedserve.bench.metrics.window import Window
from unifiedserve.bench.records import Record


def request_throughput(records: Iterable[Record], window: Window) -> float | None:
    """Return the complete answers that ended in the window, a second."""
    return _rate(len(_ended_in(records, window)), window)


def token_throughput(records: Iterable[Record], window: Window) -> float | None:
    """Return the output tokens that came in the window, a second; those of answers that broke off are among them."""
    return _rate(sum(_tokens_in(record, window) for record in records), window)


def video_throughput(records: Iterable[Record], window: Window) -> float | None:
    """Return the seconds of video a second in answers that ended in the window."""
    return _rate(sum(record.video_seconds for record in _ended_in(records, window)), window)


def offered_rate(records: Iterable[Record]) -> float | None:
    """Return the conversations that arrived a second, from when they were due; None of fewer than two at once."""
    dues = [record.due for record in records if record.turn == 0]
    span = max(dues) - min(dues) if dues else 0.0
    return (len(dues) - 1) / span if span > 0 else None


def token_progress(records: Iterable[Record]) -> tuple[np.ndarray, np.ndarray]:
    """Return the times of all tokens in order, float64 [tokens].

    With them comes how many there were by then, int64 [tokens].
    """
    times = np.sort([time for record in records for time in record.token_times])
    return times, np.arange(1, times.size + 1)


def _ended_in(records: Iterable[Record], window: Window) -> list[Record]:
    return [record for record in records if answered(record) and window.start <= record.ended <= window.stop]


def _tokens_in(record: Record, window: Window) -> int:
    return sum(window.start <= time <= window.stop for time in record.token_times)


def _rate(count: float, window: Window) -> float | None:
    return count / window.length if window.length > 0 else None
