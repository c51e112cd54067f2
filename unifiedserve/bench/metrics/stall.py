"""Time in which a stream stood still."""

from collections.abc import Iterable

import numpy as np

from unifiedserve.bench.metrics.latency import answered, tbts
from unifiedserve.bench.records import Record
from unifiedserve.bench.slo import Slo

LONG = 5  # a gap this many times the undisturbed one is a stall


def stall_limit(slo: Slo, isolated: Iterable[Record] = ()) -> float | None:
    """Return from which length on a time between tokens is a stall.

    With an isolated run, where nothing disturbs anybody: a multiple of its median TBT. Without one, the target: the
    run's own median says nothing where streams stand still for most of it. None if there is neither.
    """
    undisturbed = [tbts(record) for record in isolated if answered(record)]
    if any(gaps.size for gaps in undisturbed):
        return LONG * float(np.median(np.concatenate(undisturbed)))
    return slo.tbt


def stall_time(record: Record, limit: float) -> float:
    """Return the seconds in gaps longer than `limit`, the whole of each."""
    gaps = tbts(record)
    return float(gaps[gaps > limit].sum())


def stall_share(records: Iterable[Record], limit: float) -> float | None:
    """Return the share of the time from first to last tokens that lies in stalls. All streams count together."""
    streams = [record for record in records if len(record.token_times) > 1]
    whole = sum(record.token_times[-1] - record.token_times[0] for record in streams)
    return sum(stall_time(record, limit) for record in streams) / whole if whole > 0 else None
