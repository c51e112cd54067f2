"""Turn a search's findings into the plan that is shown: why each is limited, and what it does at other rates."""

from collections.abc import Sequence
from math import inf
from time import monotonic

from unifiedserve.bench.records import Record
from unifiedserve.bench.slo import Slo
from unifiedserve.planning.bounds import tightest
from unifiedserve.planning.candidates import Candidate
from unifiedserve.planning.case import Case
from unifiedserve.planning.objective import needed
from unifiedserve.planning.plan import Capacity, Choice, Frontier, Point
from unifiedserve.planning.pool import Pool
from unifiedserve.planning.ranking import Rated

_CURVE = (0.5, 1.1, 1.5)  # times the best placement's goodput


def choice_of(case: Case, rated: Rated, curve: Sequence[Point] = ()) -> Choice:
    """Return what is said of a candidate."""
    candidate, score = rated.candidate, rated.score
    assert score.seen is not None
    cut = tightest(case, candidate)
    return Choice(
        label=candidate.label,
        placement=candidate.placement,
        devices=candidate.devices,
        options=case.options(candidate),
        value=score.value,
        too_high=score.too_high,
        seen=score.seen,
        capacity=Capacity(cut.stages, cut.throughput if cut.throughput < inf else None),
        curve=list(curve),
    )


def curves(case: Case, pool: Pool, rated: Sequence[Rated], until: float) -> list[list[Point]]:
    """Return candidates' results below and above the best one's rate. It goes on while there is time (monotonic)."""
    rates = [factor * rated[0].score.value for factor in _CURVE]
    calls = [(each.candidate, rate, until) for rate in rates for each in rated]
    points = pool.map(point, calls)
    return [[each for each in points[place :: len(rated)] if each] for place in range(len(rated))]


def point(case: Case, candidate: Candidate, rate: float, until: float) -> Point | None:
    """Return how many requests hold their targets at a rate; None if it is too late to find out."""
    if monotonic() >= until or not (run := case.simulate(candidate, rate)):
        return None
    both = list(zip(run.records, case.tokens, strict=True))
    held = sum(needed(record, case.slo, tokens) <= 1 for record, tokens in both)
    first = sum(_first_late(record, case.slo) for record in run.records)
    return Point(rate, held / len(both), first / len(both), (len(both) - held) / len(both) - first / len(both))


def _first_late(record: Record, slo: Slo) -> bool:
    return not record.token_times or record.token_times[0] - record.due > slo.ttft_of(record)


def frontier(rated: Sequence[Rated]) -> list[Frontier]:
    """Return the Pareto front as it is shown."""
    return [Frontier(each.candidate.devices, each.score.value, each.candidate.label) for each in rated]
