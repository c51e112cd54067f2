"""Read the server's own mean TTFT, from its trace or its metrics."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import httpx

from unifiedserve.bench.client.connection import ASIDE
from unifiedserve.bench.client.dialects import Dialect
from unifiedserve.bench.records import Record

_SAMPLE = re.compile(r"^(\S+?)_(sum|count)(?:\{.*\})? (\S+)$")


class Observed(NamedTuple):
    """Count the first tokens of a server since its start, and their seconds."""

    seconds: float = 0.0
    tokens: float = 0.0


async def observe(http: httpx.AsyncClient, dialect: Dialect) -> Observed | None:
    """Return what the server's metrics tell; None if they tell nothing."""
    if not dialect.metrics:
        return None
    try:
        response = await http.get("metrics", timeout=ASIDE)
    except httpx.HTTPError:
        return None
    return _parsed(response.text, f"{dialect.metrics}time_to_first_token_seconds") if response.is_success else None


def mean_ttft(before: Observed | None, after: Observed | None, records: Sequence[Record]) -> tuple[float, float] | None:
    """Return the mean TTFT of the same requests here and at the server. Here it counts from when they were sent.

    That is by its trace if this knows all of them, else by its metrics. None if they cannot be compared: without
    metrics, or if the server has answered others as well.
    """
    answered = [record for record in records if record.token_times]
    ours = [record.token_times[0] - record.sent for record in answered]
    theirs = [record.ttft_there for record in answered if record.ttft_there is not None]
    if ours and len(theirs) == len(ours):
        return sum(ours) / len(ours), sum(theirs) / len(theirs)
    if before is None or after is None or not ours or after.tokens - before.tokens != len(ours):
        return None
    return sum(ours) / len(ours), (after.seconds - before.seconds) / len(ours)


def _parsed(text: str, name: str) -> Observed | None:
    """Add up the samples of a histogram in Prometheus' text format, over all its labels."""
    sums = {"sum": 0.0, "count": 0.0}
    found = False
    for line in text.splitlines():
        if (match := _SAMPLE.match(line)) and match[1] == name:
            sums[match[2]] += float(match[3])
            found = True
    return Observed(sums["sum"], sums["count"]) if found else None
