"""The command that measures: its report is on the disk whatever becomes of its output."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from sample_runs import make_run
from typer import Exit

from unifiedserve.bench.goodput.search import Found, Goal
from unifiedserve.bench.records import Run
from unifiedserve.bench.report import write
from unifiedserve.bench.report.files import load_run, save_run
from unifiedserve.cli import bench
from unifiedserve.errors import ConfigError

RUN = make_run("ours", 4)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent: `RUN` is what a server has answered."""

    async def run_once(*_: Any) -> Run:
        return RUN

    async def find_goodput(*_: Any) -> tuple[Found, list[Run]]:
        return Found(goal=Goal(), rate=1.0, too_high=2.0, probes=[]), [RUN, RUN]

    monkeypatch.setattr("unifiedserve.bench.benchmark.run_once", run_once)
    monkeypatch.setattr("unifiedserve.bench.benchmark.find_goodput", find_goodput)
    monkeypatch.setattr(write, "make_page", lambda *_: "a page")


def run(folder: Path, **options: Any) -> None:
    bench.run(out=str(folder), workload="text", **options)


def search(folder: Path, **options: Any) -> None:
    bench.goodput(out=str(folder), workload="text", slo_ttft=1.0, **options)


def compare(folder: Path) -> None:
    bench.compare([folder / "earlier.json"], out=str(folder))


REPORT = {"run-1.json", "figures.json", "report.html"}


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(
    ("command", "files"), [(run, REPORT), (search, REPORT | {"run-2.json", "goodput.json"}), (compare, REPORT)]
)
def test_the_report_is_written_though_nobody_reads_the_output(
    command: Callable[[Path], None], files: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_run(RUN, tmp_path / "earlier.json")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", closed)
        with pytest.raises(SystemExit):
            command(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == files | {"earlier.json"}


@pytest.mark.usefixtures("measured")
def test_what_speaks_against_the_figures_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(RUN, "cautions", ["the clock stood still"])
    with pytest.raises(Exit):
        bench.run(workload="text")
    assert capsys.readouterr().out.count("the clock stood still") == 1


@pytest.mark.usefixtures("measured")
def test_figures_are_shown_and_runs_kept_though_the_page_cannot_be_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any) -> str:
        raise ConfigError("no page")

    monkeypatch.setattr(write, "make_page", refuse)
    with pytest.raises(ConfigError, match="no page"):
        run(tmp_path)
    assert load_run(tmp_path / "run-1.json") == RUN
    assert "TTFT, s, p50" in capsys.readouterr().out


@pytest.mark.usefixtures("measured")
def test_a_place_for_the_report_is_looked_for_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr(Console, "print", lambda _, *things, **how: shown.extend(things))
    (tmp_path / "file").write_text("")
    for command in (run, search, compare):
        with pytest.raises(ConfigError, match="no report can be written here"):
            command(tmp_path / "file" / "report")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for command in (run, search, compare):
        with pytest.raises(ConfigError, match="needs matplotlib"):
            command(tmp_path)
    assert shown == []
