"""Put requests and arrivals together."""

from collections.abc import Sequence

from unifiedserve.bench.arrivals.parse import Process
from unifiedserve.bench.arrivals.processes import ClosedLoop
from unifiedserve.bench.requests import Arrival, Request


def schedule(process: Process, requests: Sequence[Request], seed: int) -> list[Arrival]:
    """Return when each request is due, in seconds; those of a closed loop are due at 0 and sent as users are free.

    Raises ConfigError if a trace is bad or has too few rows.
    """
    if isinstance(process, ClosedLoop):
        return [Arrival(0.0, request) for request in requests]
    times = process.times(len(requests), seed).tolist()
    return [Arrival(at, request) for at, request in zip(times, requests, strict=True)]
