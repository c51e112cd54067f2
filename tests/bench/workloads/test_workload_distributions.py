"""Distributions as they are written, against what is known of them."""

from pathlib import Path

import numpy as np
import pytest

from unifiedserve.bench.workloads.distributions import distribution
from unifiedserve.errors import ConfigError

SHARES = (np.arange(100_000) + 0.5) / 100_000


@pytest.mark.parametrize(
    ("text", "mean", "p95"),
    [
        ("300", 300, 300),
        ("uniform:100,to=500", 300, 480),
        ("exponential:30", 30, 30 * np.log(20)),
        ("lognormal:median=300,p95=1200", 300 * np.exp((np.log(4) / 1.6448536) ** 2 / 2), 1200),
        ("pareto:100,alpha=3", 150, 100 * 20 ** (1 / 3)),
        ("geometric:4", 4, 11),
        ("geometric:1", 1, 1),
        ("lognormal:median=300,p95=300", 300, 300),
    ],
)
def test_mean_and_tail_are_those_of_the_family(text: str, mean: float, p95: float) -> None:
    values = distribution(text).quantiles(SHARES)
    assert values.mean() == pytest.approx(mean, rel=0.01)
    assert np.percentile(values, 95) == pytest.approx(p95, rel=0.001)


def test_drawn_values_follow_the_quantiles() -> None:
    rng = np.random.default_rng(5)
    chosen = distribution("lognormal:median=300,p95=1200")
    drawn = [chosen.draw(rng) for _ in range(5000)]
    assert np.percentile(drawn, [50, 95]) == pytest.approx([300, 1200], rel=0.06)


def test_limits_cut_both_tails() -> None:
    values = distribution("lognormal:median=300,p95=1200,min=200,max=600").quantiles(SHARES)
    assert (values.min(), values.max()) == (200, 600)


def test_a_tables_percentiles_are_met(tmp_path: Path) -> None:
    path = tmp_path / "cdf.csv"
    path.write_text("quantity,percentile,value\r\nwords,0,10\r\nimages,0,1\r\nwords,50,20\r\nwords,100,100\r\n")
    chosen = distribution(f"cdf:{path},quantity=words")
    assert chosen.quantiles(np.array([0.0, 0.25, 0.5, 0.75])).tolist() == [10, 15, 20, 60]


def test_published_percentiles_are_read(data_folder: Path) -> None:
    path = data_folder / "traces" / "azure_lmm_2025_cdf_digitized.csv"
    if not path.exists():
        pytest.skip(f"no {path}")
    chosen = distribution(f"cdf:{path},quantity=context_tokens,requests=text")
    assert chosen.quantiles(np.array([0.5, 0.9])) == pytest.approx([780, 3100], rel=0.05)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lots", "is no distribution: write 300, uniform"),
        ("-3", "must be zero or more"),
        ("lognormal:300", "median is missing"),
        ("lognormal:median=300,p95=200", "p95 is below the median"),
        ("lognormal:median=0,p95=200", "median must be above zero"),
        ("pareto:100", "alpha is missing"),
        ("geometric:0.5", "at least 1"),
        ("uniform:5,to=2", "to is below the lowest"),
        ("exponential:30,mean=2", "exponential has no 'mean'"),
        ("exponential:30,min=5,max=2", "max is below min"),
        ("cdf:nowhere.csv", "nowhere.csv: No such file"),
    ],
)
def test_a_bad_one_gets_a_line_that_says_why(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        distribution(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_beyond_all_numbers_need_a_most() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ConfigError, match="its values are beyond all numbers: give it a max"):
        distribution("pareto:100,alpha=0.0001").whole(rng)
    assert distribution("pareto:100,alpha=0.0001,max=500").whole(rng) == 500


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ("a,1,2", ",kind=a", "no column kind, but quantity, percentile, value"),
        ("a,1,2", ",quantity=b", "has no such rows"),
        ("a,2,2\na,1,3", "", "must rise"),
        ("a,1,x", "", "line 2: value must be a number"),
    ],
)
def test_a_bad_table_is_named(rows: str, options: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "cdf.csv"
    path.write_text(f"quantity,percentile,value\n{rows}\n")
    with pytest.raises(ConfigError, match=message):
        distribution(f"cdf:{path}{options}")
