"""Compare requests among others with requests alone."""

from collections.abc import Callable, Iterable, Mapping
from statistics import median

from unifiedserve.bench.records import Record

Latency = Callable[[Record], float | None]


def alone(isolated: Iterable[Record], latency: Latency) -> dict[str, float]:
    """Return the median latency of each kind of request in an isolated run."""
    found: dict[str, list[float]] = {}
    for record in isolated:
        if record.error is None and (seconds := latency(record)) is not None:
            found.setdefault(record.kind, []).append(seconds)
    return {kind: median(values) for kind, values in found.items()}


def slowdown(record: Record, latency: Latency, undisturbed: Mapping[str, float]) -> float | None:
    """Return a latency as a multiple of its kind's when alone; None if either is not known."""
    seconds, usual = latency(record), undisturbed.get(record.kind)
    return seconds / usual if seconds is not None and usual else None
