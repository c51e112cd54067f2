"""Measure latencies of one turn, in seconds from when it was due. None where there is nothing to measure."""

import numpy as np
import numpy.typing as npt

from unifiedserve.bench.records import Record

Seconds = npt.NDArray[np.float64]

MOMENT = 1e-3  # seconds within which tokens came together


def answered(record: Record) -> bool:
    """Tell whether the answer is complete and has tokens."""
    return record.error is None and bool(record.token_times)


def send_delay(record: Record) -> float:
    """Return how late the client sent the turn: its own error, which the latencies contain."""
    return record.sent - record.due


def ttft(record: Record) -> float | None:
    """Return the time to the first token."""
    return record.token_times[0] - record.due if record.token_times else None


def e2e(record: Record) -> float | None:
    """Return the time to the end of a complete answer."""
    return record.ended - record.due if answered(record) else None


def arrivals(record: Record) -> tuple[Seconds, int]:
    """Return when something arrived, float64 [arrivals], and how many tokens the first of them brought.

    Tokens that came within a moment are one arrival, for the reader sees them as one.
    """
    times = np.asarray(record.token_times, np.float64)
    if times.size < 2 or np.diff(times).min() >= MOMENT:
        return times, min(1, times.size)
    starts = [0]
    for token, time in enumerate(record.token_times):
        if time - times[starts[-1]] >= MOMENT:
            starts.append(token)
    return times[starts], starts[1] if len(starts) > 1 else times.size


def tbts(record: Record) -> Seconds:
    """Return every time between tokens, float64 [arrivals − 1]; tokens that came together have none between them."""
    return np.diff(arrivals(record)[0])


def tpot(record: Record) -> float | None:
    """Return the time per output token after the first arrival."""
    times, first = arrivals(record)
    if times.size < 2:
        return None
    return float(times[-1] - times[0]) / (len(record.token_times) - first)


def normalised_latency(record: Record) -> float | None:
    """Return the end-to-end latency by the number of output tokens, seconds a token (Orca §6.2, vLLM §6.1)."""
    latency = e2e(record)
    return None if latency is None else latency / len(record.token_times)
