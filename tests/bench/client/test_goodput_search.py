"""The highest rate that is served well, found by search."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.bench.goodput.bracket import Bracket
from unifiedserve.bench.goodput.search import Goal, search

MOST_RUNS = 24  # ten doublings, and as many bisections as a bracket of two needs for 1 %


@given(limit=st.floats(0.01, 500), first=st.floats(0.05, 20), precision=st.floats(0.01, 0.2))
def test_the_bracket_closes_around_the_limit(limit: float, first: float, precision: float) -> None:
    bracket = Bracket(first, precision)
    tried = []
    while (rate := bracket.next_rate()) is not None:
        tried.append(rate)
        bracket.tell(rate, rate <= limit)
    assert len(tried) <= MOST_RUNS
    assert len(set(tried)) == len(tried)
    if bracket.low is not None:
        assert bracket.low <= limit
    if bracket.high is not None:
        assert limit < bracket.high
    if bracket.low is not None and bracket.high is not None:
        assert bracket.high <= bracket.low * (1 + precision) or bracket.high - bracket.low < 1e-3 * bracket.high


def served_up_to(limit: float, ran: list[tuple[float, int]], until: int = 10**6) -> object:
    async def run(rate: float, seed: int) -> float | None:
        ran.append((rate, seed))
        return None if len(ran) > until else (1.0 if rate <= limit else 0.5)

    return run


async def test_every_run_is_kept_and_has_a_seed_of_its_own() -> None:
    ran: list[tuple[float, int]] = []
    found = await search(served_up_to(5.3, ran), Goal(repeats=2), seed=7)  # type: ignore[arg-type]
    assert found.rate is not None
    assert found.rate <= 5.3 < (found.too_high or 0) <= 1.05 * found.rate
    assert [(probe.rate, probe.seed) for probe in found.probes] == ran
    assert len({seed for _, seed in ran}) == len(ran)


async def test_servers_get_the_same_requests_at_the_same_rates() -> None:
    fast: list[tuple[float, int]] = []
    slow: list[tuple[float, int]] = []
    await search(served_up_to(7.0, fast), Goal(), seed=7)  # type: ignore[arg-type]
    await search(served_up_to(3.0, slow), Goal(), seed=7)  # type: ignore[arg-type]
    shared = dict(fast).keys() & dict(slow).keys()
    assert shared >= {1.0, 2.0, 4.0}
    assert all(dict(fast)[rate] == dict(slow)[rate] for rate in shared)


async def test_repeats_count_by_their_mean() -> None:
    shares = iter([0.95, 0.86, 0.85, 0.94])

    async def run(rate: float, seed: int) -> float | None:
        return next(shares, None)

    found = await search(run, Goal(repeats=2), seed=1)
    assert (found.rate, found.too_high, found.interrupted) == (1.0, 2.0, True)


@pytest.mark.parametrize(("limit", "rate", "too_high"), [(1e-9, None, 1 / 64), (1e9, 1024.0, None)], ids=["no", "yes"])
async def test_a_search_without_a_limit_in_reach_ends(limit: float, rate: float | None, too_high: float | None) -> None:
    found = await search(served_up_to(limit, []), Goal(), seed=7)  # type: ignore[arg-type]
    assert (found.rate, found.too_high) == (rate, too_high)


async def test_an_interrupted_search_keeps_what_it_has() -> None:
    found = await search(served_up_to(9.0, [], until=3), Goal(), seed=7)  # type: ignore[arg-type]
    assert (found.rate, found.interrupted, len(found.probes)) == (4.0, True, 3)
