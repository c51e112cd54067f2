"""Split the time of requests into phases, by the server's own trace."""

from collections.abc import Sequence
from statistics import mean, median
from typing import get_args

import msgspec

from unifiedserve.bench.records import Phase, Record

PHASES: tuple[Phase, ...] = get_args(Phase)


class PhaseTime(msgspec.Struct, frozen=True):
    """Hold seconds of a phase a request, over all requests that have a trace. Those without the phase count as 0."""

    mean: float
    median: float
    sum: float


def breakdown(records: Sequence[Record]) -> dict[Phase, PhaseTime]:
    """Return the time of each phase, in the order of a request's way. It is empty if nothing was traced."""
    traced = [record.phases for record in records if record.phases]
    return {
        phase: _time([phases.get(phase, 0.0) for phases in traced])
        for phase in PHASES
        if any(phase in phases for phases in traced)
    }


def _time(seconds: Sequence[float]) -> PhaseTime:
    seconds = sorted(seconds)  # so that their order changes no digit
    return PhaseTime(mean(seconds), median(seconds), sum(seconds))
