"""The papers' experiments: they are whole, and what is drawn of their runs is there."""

import re
from pathlib import Path

import contestants
import drawing
import experiment
import pytest
import reproduce
import sweep
import trace_shape
import typer
from typer.testing import CliRunner

from unifiedserve.bench.arrivals.parse import parse
from unifiedserve.bench.metrics.summary import Yardstick
from unifiedserve.bench.records import Record, Run
from unifiedserve.bench.report.write import write_report
from unifiedserve.bench.requests import Request, Text, Turn
from unifiedserve.errors import ConfigError


@pytest.mark.parametrize("name", experiment.names())
def test_an_experiment_is_whole(name: str) -> None:
    found = experiment.read(name)
    for text in found.servers:
        contestants.read(text)
    for rate in found.rates:
        parse(found.arrivals_at(rate, Path("trace.csv")))
    if found.workload != experiment.TRACE:
        mix = experiment.mix_of(found, [])
        first = mix.kind[0].name
        assert [kind.name for kind in experiment.mix_of(found, [first]).kind] == [first]
        with pytest.raises(ConfigError, match="no kind nothing; there are"):
            experiment.mix_of(found, ["nothing"])


def test_the_page_has_all_experiments_and_no_others() -> None:
    page = (experiment.FOLDER / "README.md").read_text()
    named = re.findall(r"^\|[^|]*\| ((?:`[a-z-]+`(?:, )?)+) \|", page, re.MULTILINE)
    assert {name for names in named for name in re.findall(r"[a-z-]+", names)} == set(experiment.names())


def test_a_quick_experiment_has_all_kinds_in_equal_shares() -> None:
    mix = experiment.shrunk(experiment.mix_of(experiment.read("goodput-mixed"), []))
    assert {kind.share for kind in mix.kind} == {1}
    assert all(kind.seconds.text == "2" for kind in mix.kind)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["trace"],
        ["overlap", "--servers", "sglang"],
        ["bursts", "--rates", "x"],
        ["bursts", "--rates", "0"],
    ],
)
def test_bad_input_is_told_of_in_words(arguments: list[str], tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(reproduce.main)
    options = ["--quick", "--model", str(tmp_path / "model"), "--media", str(tmp_path)]
    result = CliRunner().invoke(app, [*arguments, *options])
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert result.stderr


def record(kind: str, ttft: float, **phases: float) -> Record:
    times = [1 + ttft, 1 + ttft + 0.1, 1 + ttft + 0.2]
    return Record(
        request=f"{kind}{ttft}", kind=kind, due=1.0, sent=1.0, token_times=times, ended=times[-1], phases=phases
    )


def run_of(name: str, arrivals: str, records: list[Record]) -> Run:
    return Run(
        name=name, command=[], started="", seed=0, url="", model="", workload="", arrivals=arrivals, records=records
    )


def drawn(runs: list[Run], folder: Path) -> list[str]:
    write_report(runs, Yardstick(), folder)
    return [path.name for path in drawing.draw_saved(folder / "figures.json") if path.exists()]


def test_what_is_drawn_follows_from_the_saved_figures(tmp_path: Path) -> None:
    alone = [run_of(name, "closed:1", [record("video", 2.0, vision=1.0, encode=1.5)]) for name in ("a", "b")]
    assert drawn(alone, tmp_path / "alone") == ["stages.png", "rates.png"]
    records = [record("text", ttft) for ttft in (0.5, 1.0)]
    rates = [run_of("a", f"poisson:{rate}", records) for rate in (1, 2)]
    assert drawn(rates, tmp_path / "rates") == ["over-rate.png"]


def test_targets_are_multiples_of_what_requests_take_alone() -> None:
    found = sweep.targets(experiment.read("overlap"), [record("text", 0.5), record("video", 2.0)])
    assert found.ttft_of_kind == {"text": pytest.approx(2.5), "video": pytest.approx(10.0)}
    assert found.tbt == pytest.approx(0.5)


def test_a_few_of_each_kind_are_measured_alone() -> None:
    turn = Turn(parts=(Text("?"),), max_tokens=1)
    requests = [Request(id=f"{kind}{n}", kind=kind, turns=(turn,)) for n in range(9) for kind in ("text", "video")]
    whole = sweep.Sweep("name", requests, ["closed:4", "poisson:2"], 0, 8, 10_000)
    alone = whole.alone("server")
    assert (alone.users, [request.id for request in alone.warmup]) == (1, ["text0", "video0"])
    assert [arrival.request.id for arrival in alone.requests] == [
        "text0",
        "text1",
        "text2",
        "video0",
        "video1",
        "video2",
    ]
    assert [(plan.users, len(plan.requests)) for plan in whole.plans("server")] == [(4, 18), (0, 18)]


def test_even_arrivals_have_no_bursts() -> None:
    rows = [trace_shape.Row(at=float(n), input_tokens=1, output_tokens=1) for n in range(121)]
    assert trace_shape.burstiness(rows) == 0
    assert trace_shape.a_minute(rows).tolist() == [60, 60, 1]


def test_the_report_is_written_of_what_there_is(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "run-9.json").write_text("old")
    results = sweep.Results([run_of("a", "closed:1", [record("text", 0.5, prefill=0.3)])], [record("text", 0.5)])
    written = reproduce.report(experiment.read("overlap"), results, folder)
    assert [path.name for path in written] == ["report.html", "figures.json", "stages.png", "rates.png"]
    assert not (folder / "run-9.json").exists()
