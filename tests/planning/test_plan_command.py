"""`unifiedserve plan`: its JSON and its files, and one line for each mistake."""

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from command_line import Failed
from planned_cases import profile

from unifiedserve.cli.app import main
from unifiedserve.planning.plan import Plan
from unifiedserve.profiles import write_profile

SMALL = (
    "--trace",
    "image",
    "--requests",
    "8",
    "--trials",
    "3",
    "--processes",
    "1",
    "--slo-ttft",
    "5",
    "--slo-tbt",
    "1",
)


@pytest.fixture
def profile_file(tmp_path: Path) -> str:
    path = tmp_path / "profile.toml"
    write_profile(path, profile())
    return str(path)


def test_the_plan_as_json_and_as_files(failed: Failed, profile_file: str, tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    code, out, _ = failed("plan", "--profile", profile_file, *SMALL, "--out", str(folder), "--json")
    assert code == 0
    assert msgspec.json.decode(out, type=Plan) == msgspec.json.decode((folder / "plan.json").read_bytes(), type=Plan)
    assert {path.name for path in folder.iterdir()} == {"placement.toml", "plan.json", "plan.svg"}


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_files_are_written_though_nobody_reads_the_output(
    form: list[str], profile_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "plan"
    arguments = ["unifiedserve", "plan", "--profile", profile_file, *SMALL, "--out", str(folder), *form]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as closed, monkeypatch.context() as patch:
        patch.setattr(sys, "argv", arguments)
        patch.setattr(sys, "stdout", closed)
        with pytest.raises(SystemExit):
            main()
        os.dup2(os.open(os.devnull, os.O_WRONLY), closed.fileno())  # what is left in its buffer goes there
    assert (folder / "placement.toml").exists()


def test_targets_that_nothing_meets_end_with_1(failed: Failed, profile_file: str, tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    arguments = ("--profile", profile_file, *SMALL[:-4], "--slo-ttft", "0.001", "--out", str(folder))
    code, out, _ = failed("plan", *arguments)
    assert code == 1
    assert "nothing meets these targets" in out
    assert not folder.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--devices", "0"], ["--devices 0", "one device"]),
        (["--devices", "10000"], ["--devices 10000", "64 at most", "behind a router"]),
        (["--devices", "2"], ["all of whose cores are one device"]),
        (["--slo-ttft-per-video-second", "1"], ["add to --slo-ttft"]),
        ([], ["goodput needs targets"]),
        (["--slo-ttft", "0"], ["--slo-ttft"]),
        (["--slo-tbt", "inf"], ["--slo-tbt inf", "finite"]),
        (["--slo-ttft", "1", "--cv", "inf"], ["--cv"]),
        (["--slo-ttft", "1", "--cv", "1e-200"], ["--cv"]),
        (["--slo-ttft", "1", "--model", "another"], ["is of the model tiny, not of another"]),
        (["--slo-ttft", "1", "--trace", "no-such-trace"], ["no such file", "mixed"]),
        (["--slo-ttft", "1", "--trace", "trace"], ["--trace trace", "no such file"]),
        (["--slo-ttft", "1", "--trace", "text"], ["no images and no videos", "NumImages", "--texts-only"]),
    ],
)
def test_mistakes(error_of: Callable[..., str], profile_file: str, arguments: list[str], words: list[str]) -> None:
    line = error_of("plan", "--profile", profile_file, "--trials", "1", *arguments)
    for word in words:
        assert word in line


def test_a_folder_that_cannot_be_written_ends_before_the_search(
    error_of: Callable[..., str], profile_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unifiedserve.cli.plan.make_plan", lambda *_, **__: pytest.fail("it has searched"))
    line = error_of("plan", "--profile", profile_file, *SMALL, "--out", f"{profile_file}/plan")
    assert "cannot be written" in line
    assert "--out" in line


def test_the_command_serves_from_any_folder(failed: Failed, profile_file: str, tmp_path: Path) -> None:
    folder = tmp_path / "a [/plan] of mine"
    code, out, _ = failed("plan", "--profile", profile_file, *SMALL, "--out", str(folder))
    assert code == 0
    words = shlex.split(out.splitlines()[-1])
    assert words[:4] == ["unifiedserve", "serve", "--placement", str(folder / "placement.toml")]


@pytest.mark.long
def test_a_model_that_was_not_measured(
    error_of: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "was not measured on this machine: run unifiedserve profile" in error_of("plan", "--slo-ttft", "1")
