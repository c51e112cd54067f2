"""Arrivals by random processes: reproducible, at their rate, and as the command line writes them."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unifiedserve.bench.arrivals.parse import parse
from unifiedserve.bench.arrivals.processes import ClosedLoop, Constant, Gamma, OpenLoop, Poisson
from unifiedserve.bench.arrivals.schedule import schedule
from unifiedserve.bench.requests import Request, Text, Turn
from unifiedserve.errors import ConfigError

MANY = 50_000
REQUESTS = [
    Request(id=str(number), kind="text", turns=(Turn(parts=(Text("why?"),), max_tokens=4),)) for number in range(50)
]

rates = st.floats(0.01, 1000)
open_loops = st.one_of(
    st.builds(Constant, rates), st.builds(Poisson, rates), st.builds(Gamma, rates, st.floats(0.2, 8))
)


@pytest.mark.parametrize("spec", ["constant:3", "poisson:2.5", "gamma:2,cv=4"])
def test_the_seed_alone_decides_to_the_byte(spec: str) -> None:
    def sent(seed: int) -> bytes:
        return msgspec.json.encode(schedule(parse(spec), REQUESTS, seed))

    assert sent(7) == sent(7)
    assert (sent(7) == sent(8)) == spec.startswith("constant")


@pytest.mark.parametrize(
    ("process", "cv"), [(Poisson(2.5), 1.0), (Gamma(2.5, 4.0), 4.0), (Gamma(2.5, 0.5), 0.5), (Constant(2.5), 0.0)]
)
def test_rate_and_burstiness_are_as_asked(process: OpenLoop, cv: float) -> None:
    gaps = np.diff(process.times(MANY, 3))
    assert 1 / gaps.mean() == pytest.approx(2.5, rel=0.06)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.06, abs=1e-6)


def test_poisson_counts_vary_as_much_as_their_mean() -> None:
    counts = np.bincount(Poisson(5.0).times(MANY, 1).astype(int))[:-1]
    assert counts.var() == pytest.approx(counts.mean(), rel=0.06)


@settings(max_examples=50)
@given(open_loops, st.integers(0, 200), st.integers(0, 2**31))
def test_times_begin_after_zero_never_fall_and_do_not_depend_on_how_many(
    process: OpenLoop, count: int, seed: int
) -> None:
    times = process.times(count, seed)
    assert len(times) == count
    assert (np.diff(times) >= 0).all()
    assert (times >= 0).all()
    assert (process.times(count + 5, seed)[:count] == times).all()


def test_requests_of_a_closed_loop_are_all_due_at_once() -> None:
    assert {arrival.at for arrival in schedule(ClosedLoop(4), REQUESTS, 0)} == {0.0}


def test_what_the_command_line_writes() -> None:
    assert parse("closed:8") == ClosedLoop(8)
    assert parse("constant:1") == Constant(1.0)
    assert parse("poisson:2.5") == Poisson(2.5)
    assert parse("Gamma: 2.5, cv=4") == Gamma(2.5, 4.0)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("every now and then", "is not understood: write closed:USERS"),
        ("poisson", "the value is missing, as in poisson:1"),
        ("poisson:0", "above zero"),
        ("poisson:-1", "above zero"),
        ("poisson:nan", "finite"),
        ("poisson:inf", "finite"),
        ("poisson:fast", "must be a number, not 'fast'"),
        ("poisson:1,cv=2", "poisson has no 'cv'"),
        ("closed:1.5", "must be whole"),
        ("gamma:2", "cv is missing"),
        ("gamma:2,cv=1e-200", "cv must be from 0.001 to 1000"),
        ("gamma:2,cv=1e200", "cv must be from 0.001 to 1000"),
        ("gamma:2,cv=1,cv=2", "cv is given twice"),
        ("gamma:2,4", "'4' is not of the form key=value"),
        ("trace:", "the path is missing"),
        ("trace:a.csv?pace=2", "trace has no 'pace', but scale, from"),
        ("trace:a.csv?scale=0", "scale must be above zero"),
        ("trace:a.csv?from=3&to=2", "`to` must be later than `from`"),
        ("trace:a.csv?first=0", "first must be above zero"),
    ],
)
def test_a_bad_spec_gets_a_line_that_says_why(spec: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(spec)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
