"""Compute all figures of a run, overall and by kind of request."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from unifiedserve.bench.metrics import latency
from unifiedserve.bench.metrics.accuracy import accuracy
from unifiedserve.bench.metrics.attainment import attainment, tbt_held, ttft_held
from unifiedserve.bench.metrics.distribution import Distribution, describe
from unifiedserve.bench.metrics.phases import PhaseTime, breakdown
from unifiedserve.bench.metrics.slowdown import alone, slowdown
from unifiedserve.bench.metrics.stall import stall_limit, stall_share, stall_time
from unifiedserve.bench.metrics.throughput import (
    offered_rate,
    request_throughput,
    token_throughput,
    video_throughput,
)
from unifiedserve.bench.metrics.window import Window, due_in, steady, whole
from unifiedserve.bench.records import Phase, Record
from unifiedserve.bench.slo import Slo


class Yardstick(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what a run is measured against: targets, and records of requests alone.

    The records may be missing. Requests due in the first `ramp_up` and in the last `ramp_down` seconds of arrivals are
    left out.
    """

    slo: Slo = Slo()
    isolated: Sequence[Record] = ()
    ramp_up: float = 0.0
    ramp_down: float = 0.0

    def window(self, records: Sequence[Record]) -> Window | None:
        """Return which part of a run is looked at. Raises ConfigError if the ramps leave nothing."""
        if self.ramp_up or self.ramp_down:
            return steady(records, self.ramp_up, self.ramp_down)
        return whole(records)

    def seen(self, records: Sequence[Record]) -> list[Record]:
        """Return the records of what was due in that part."""
        window = self.window(records)
        return due_in(records, window) if window else []


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the figures of some requests, in seconds, shares and per second. None where there is nothing to measure.

    Latencies are those of complete answers; requests that failed count in `failed` and against `attainment`.
    """

    requests: int
    failed: int
    offered: float | None
    attainment: float | None
    ttft_held: float | None
    tbt_held: float | None
    request_throughput: float | None
    token_throughput: float | None
    video_throughput: float | None
    ttft: Distribution | None
    tbt: Distribution | None
    tpot: Distribution | None
    e2e: Distribution | None
    normalised_latency: Distribution | None
    stall_limit: float | None
    stall_time: Distribution | None
    stall_share: float | None
    ttft_slowdown: Distribution | None
    e2e_slowdown: Distribution | None
    send_delay: Distribution | None
    accuracy: float | None
    phases: dict[Phase, PhaseTime]


def summarise(records: Sequence[Record], yardstick: Yardstick) -> Summary:
    """Return the figures of all requests. Raises ConfigError if the yardstick's ramps leave nothing."""
    return _summary(records, yardstick, yardstick.window(records))


def summarise_kinds(records: Sequence[Record], yardstick: Yardstick) -> dict[str, Summary]:
    """Return the figures of each kind of request, by name; rates are over the same time as those of all requests."""
    window = yardstick.window(records)
    return {kind: _summary(some, yardstick, window) for kind, some in by_kind(records).items()}


def by_kind(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the records of each kind, kinds in alphabetical order."""
    kinds = sorted({record.kind for record in records})
    return {kind: [record for record in records if record.kind == kind] for kind in kinds}


def failures(records: Sequence[Record]) -> list[tuple[str, int]]:
    """Return each message of failed requests and how many have it, the most frequent first."""
    counts = Counter(record.error for record in records if record.error is not None)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _summary(records: Sequence[Record], yardstick: Yardstick, window: Window | None) -> Summary:
    slo, isolated = yardstick.slo, yardstick.isolated
    seen = due_in(records, window) if window else []
    complete = [record for record in seen if latency.answered(record)]
    limit = stall_limit(slo, isolated)
    alone_ttft, alone_e2e = alone(isolated, latency.ttft), alone(isolated, latency.e2e)
    return Summary(
        requests=len(seen),
        failed=sum(record.error is not None for record in seen),
        offered=offered_rate(seen),
        attainment=attainment(seen, slo),
        ttft_held=ttft_held(seen, slo),
        tbt_held=tbt_held(seen, slo),
        request_throughput=request_throughput(records, window) if window else None,
        token_throughput=token_throughput(records, window) if window else None,
        video_throughput=video_throughput(records, window) if window else None,
        ttft=describe(map(latency.ttft, complete)),
        tbt=describe(gap for record in complete for gap in latency.tbts(record)),
        tpot=describe(map(latency.tpot, complete)),
        e2e=describe(map(latency.e2e, complete)),
        normalised_latency=describe(map(latency.normalised_latency, complete)),
        stall_limit=limit,
        stall_time=None if limit is None else describe(stall_time(record, limit) for record in complete),
        stall_share=None if limit is None else stall_share(complete, limit),
        ttft_slowdown=describe(slowdown(record, latency.ttft, alone_ttft) for record in complete),
        e2e_slowdown=describe(slowdown(record, latency.e2e, alone_e2e) for record in complete),
        send_delay=describe(map(latency.send_delay, seen)),
        accuracy=accuracy(seen),
        phases=breakdown(complete),
    )
