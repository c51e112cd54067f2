"""Count the requests that got what they are owed."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from unifiedserve.bench.metrics.latency import answered, tbts, ttft
from unifiedserve.bench.records import Record
from unifiedserve.bench.slo import Slo

SHARE = 0.9  # of a request's TBTs that have to hold, and of the requests at a rate that counts as goodput


class Goodput(NamedTuple):
    """Hold the highest rate that is served well, in requests a second. `beyond` if no higher one was tried."""

    rate: float
    beyond: bool


def needed_scale(record: Record, slo: Slo) -> float:
    """Return the smallest factor on all targets with which the request holds them; infinite if it failed.

    Its TTFT has to hold and nine of ten of its TBTs, so what counts is the longest TBT of the best nine tenths.
    """
    first = ttft(record)
    if not answered(record) or first is None:
        return math.inf
    scale = _ratio(first, slo.ttft_of(record))
    gaps = np.sort(tbts(record))
    if gaps.size:
        scale = max(scale, _ratio(float(gaps[math.ceil(SHARE * gaps.size - 1e-9) - 1]), slo.tbt_limit))
    return scale


def attains(record: Record, slo: Slo) -> bool:
    """Tell whether the request holds its targets."""
    return needed_scale(record, slo) <= 1


def attainment(records: Iterable[Record], slo: Slo) -> float | None:
    """Return the share of requests that hold their targets; those that failed do not. None if there are no targets."""
    return None if slo.asks_nothing else attainment_over_scale(records, slo, [1.0])[0]


def attainment_over_scale(records: Iterable[Record], slo: Slo, scales: Sequence[float]) -> list[float | None]:
    """Return the attainment with the targets times each of `scales` (as AlpaServe and DistServe do)."""
    needed = np.sort([needed_scale(record, slo) for record in records])
    if not needed.size:
        return [None for _ in scales]
    return [float(count) / needed.size for count in np.searchsorted(needed, scales, side="right")]


def ttft_held(records: Iterable[Record], slo: Slo) -> float | None:
    """Return the share of complete answers whose TTFT holds. Only those with a target count."""
    due = [record for record in records if answered(record) and slo.ttft_of(record) < math.inf]
    return _share([record.token_times[0] - record.due <= slo.ttft_of(record) for record in due])


def tbt_held(records: Iterable[Record], slo: Slo) -> float | None:
    """Return the share of all TBTs of complete answers that hold; None if there is no target for them."""
    if slo.tbt is None:
        return None
    return _share([gap <= slo.tbt_limit for record in records if answered(record) for gap in tbts(record).tolist()])


def goodput(points: Iterable[tuple[float, float]], goal: float = SHARE) -> Goodput | None:
    """Return the goodput from (rate, attainment) points: the highest rate with at least the `goal`.

    It is interpolated linearly between the highest rate that reaches the goal and the next one. None if none does.
    """
    ordered = sorted(points)
    good = [place for place, (_, share) in enumerate(ordered) if share >= goal]
    if not good:
        return None
    rate, share = ordered[good[-1]]
    if good[-1] + 1 == len(ordered):
        return Goodput(rate, True)
    next_rate, next_share = ordered[good[-1] + 1]
    return Goodput(rate + (next_rate - rate) * (share - goal) / (share - next_share), False)


def _ratio(value: float, target: float) -> float:
    return value / target if target > 0 else math.inf


def _share(held: Sequence[bool]) -> float | None:
    return sum(held) / len(held) if held else None
