"""Judge whether requests got what they are owed, by a run's figures."""

from collections.abc import Mapping, Sequence
from math import ceil, inf

import msgspec
import numpy as np

from unifiedserve.bench.metrics.attainment import SHARE, needed_scale
from unifiedserve.bench.metrics.latency import tbts
from unifiedserve.bench.records import Record
from unifiedserve.bench.slo import Slo
from unifiedserve.placement import Stage

GOAL = SHARE  # of requests: HydraInfer §2.3, EPD §3.3.3


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what clients saw of a run: the share of requests that held their targets, and seconds.

    `busy` is the part of the time that the workers of each stage had a step under way, as far as that is known.
    """

    attainment: float
    scale: float | None  # of the targets, with which just enough requests would hold them; None: too few end
    ttft_p50: float | None = None
    ttft_p90: float | None = None
    tbt_p99: float | None = None
    busy: dict[Stage, float] = {}


def last_due(record: Record, slo: Slo, tokens: int) -> float:
    """Return by when (seconds) a request of so many tokens owes the last one."""
    return record.due + slo.ttft_of(record) + (slo.tbt_limit * (tokens - 1) if tokens > 1 else 0.0)


def needed(record: Record, slo: Slo, tokens: int) -> float:
    """Return the smallest factor on the targets with which a request holds them; infinite if it is not complete.

    The targets are for the first token, for nine of ten TBTs, and for their mean: else a stream could stand still once
    for as long as it likes.
    """
    if len(record.token_times) != tokens:
        return inf
    mean = (
        (record.token_times[-1] - record.due) / allowed
        if (allowed := last_due(record, slo, tokens) - record.due)
        else inf
    )
    return max(needed_scale(record, slo), mean)


def latencies(
    records: Sequence[Record], tokens: Sequence[int], slo: Slo, busy: Mapping[Stage, float] | None = None
) -> Latencies:
    """Return the figures of a run whose requests were to have so many `tokens`."""
    scales = sorted(needed(record, slo, count) for record, count in zip(records, tokens, strict=True))
    first = [record.token_times[0] - record.due for record in records if record.token_times]
    gaps = np.concatenate([tbts(record) for record in records]) if records else np.zeros(0)
    return Latencies(
        attainment=sum(scale <= 1 for scale in scales) / len(scales),
        scale=enough if (enough := scales[ceil(GOAL * len(scales) - 1e-9) - 1]) < inf else None,
        ttft_p50=float(np.percentile(first, 50)) if first else None,
        ttft_p90=float(np.percentile(first, 90)) if first else None,
        tbt_p99=float(np.percentile(gaps, 99)) if gaps.size else None,
        busy=dict(busy or {}),
    )
