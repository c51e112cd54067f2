"""The parts of a benchmark, put together as the command does it."""

from pathlib import Path

import pytest
from rich.console import Console

from unifiedserve.bench.assembly import check, parts
from unifiedserve.bench.options import GoodputOptions, RunOptions
from unifiedserve.bench.slo import Slo
from unifiedserve.errors import ConfigError


def test_requests_of_a_search_are_drawn_before_a_rate_is_known() -> None:
    options = GoodputOptions(workload="text")
    check(options)
    drawn = parts(Slo(), Console()).requests(options, 3, 4)
    assert [request.kind for request in drawn] == ["text"] * 4
    assert list(drawn) == list(parts(Slo(), Console()).requests(RunOptions(workload="text"), 3, 4))


def test_a_traces_own_workload_is_possible_if_the_trace_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_time,input_tokens,output_tokens\n0,20,4\n1,30,4\n")
    options = RunOptions(workload="trace", arrivals=f"trace:{path}")
    check(options)
    assert len(parts(Slo(), Console()).requests(options, 3, 4)) == 2
    path.write_text("arrival_time,input_tokens,output_tokens\n0,none,4\n")
    with pytest.raises(ConfigError, match="line 2"):
        check(options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (RunOptions(arrivals="poisson:none"), "poisson:none"),
        (RunOptions(workload="no-such"), "no-such"),
        (RunOptions(dataset="mlvu"), "--data-dir"),
        (RunOptions(dataset="no-such", data_dir="."), "no-such"),
        (GoodputOptions(arrivals="closed:RATE"), "RATE is no rate there"),
        (GoodputOptions(arrivals="gamma:2,cv=RATE"), "RATE is no rate there"),
        (GoodputOptions(arrivals="trace:/no/such.csv?scale=RATE"), "RATE is no rate there"),
    ],
)
def test_what_is_wrong_is_said_before_a_server_is_asked(options: RunOptions, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check(options)
