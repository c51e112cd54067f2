"""The runner of the GPU bench keeps what it knows, whatever an item does, and holds its limits."""

import ast
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.gpu import cargo, command, luggage, machine, needs, processes, report
from bench.gpu.brief import brief
from bench.gpu.item import Item, allowance
from bench.gpu.parts import ITEMS, PARTS, of_part
from bench.gpu.results import Results
from bench.gpu.runner import MARGIN
from bench.gpu.visits import VISITS, of_visit

REPOSITORY = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("gpu_driver.py")
FILES = {"results.json", "report.md", "results.tar.gz"}
MOST_BYTES = 16 << 20  # of a file that is brought back
Records = dict[str, dict[str, Any]]


def run(out: Path, *items: dict[str, Any], deadline: float = 600) -> tuple[subprocess.CompletedProcess[str], Records]:
    """Run items whose targets are in gpu_items.py; return the finished process and the records on disk, by name."""
    given = [item | {"target": f"gpu_items:{item['target']}"} for item in items]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(DRIVER.parent)])}
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(out), str(deadline), json.dumps(given)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    return done, {record["item"]: record for record in json.loads((out / "results.json").read_text())["items"]}


def item(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "target": name, **more}


def found(name: str = "finds") -> dict[str, Any]:
    return item(name, target="finds", arguments=["it"])


def in_archive(out: Path) -> dict[str, bytes]:
    """Return the files of the archive by their names."""
    with tarfile.open(out / "results.tar.gz") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_an_item_s_end_is_its_own(tmp_path: Path) -> None:
    done, records = run(
        tmp_path,
        item("crashes"),
        item("raises"),
        item("skips"),
        item("skips_as_tests_do"),
        item("needs_what_is_not_there", target="finds", needs=["references"]),
        found(),
    )
    assert done.returncode == 1
    assert {name: record["status"] for name, record in records.items()} == {
        "crashes": "failed",
        "raises": "failed",
        "skips": "skipped",
        "skips_as_tests_do": "failed",
        "needs_what_is_not_there": "skipped",
        "finds": "ok",
    }
    assert records["crashes"]["error"] == f"ended by signal {signal.SIGSEGV.value}"
    assert records["crashes"]["figures"] == records["raises"]["figures"] == {"half": 1}
    assert "last words" in records["crashes"]["tail"]
    assert b"last words" in in_archive(tmp_path)[f"first/{records['crashes']['log']}"]
    assert records["raises"]["error"] == "ValueError: so it is"
    assert records["skips"]["error"] == "nothing to do here"
    assert records["skips_as_tests_do"]["error"] == "Skipped: no such package"
    assert records["needs_what_is_not_there"]["error"].startswith("no references in /nonexistent")
    assert records["finds"]["figures"] == {"found": "it"}
    assert done.stdout.splitlines()[0].startswith("/nonexistent is not there")


def test_what_hangs_or_stays_is_ended(tmp_path: Path) -> None:
    """Its group, and also what has left that."""
    _, records = run(tmp_path, item("hangs", limit=2), item("leaves_a_daemon"))
    assert records["hangs"]["status"] == "timeout"
    assert records["hangs"]["error"] == "not done within 2 s"
    assert all(map(is_gone, records["hangs"]["figures"]["pids"]))
    assert records["leaves_a_daemon"]["status"] == "ok"
    assert is_gone(records["leaves_a_daemon"]["figures"]["pid"])


def test_what_cannot_be_killed_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that hangs in a driver outlives SIGKILL."""
    children: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def started(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        children.append(start(*arguments, **options))
        return children[-1]

    monkeypatch.setattr(processes, "GRACE", 0.1)
    with (tmp_path / "log").open("wb") as log, monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", started)
        patch.setattr(os, "killpg", lambda *_: None)
        patch.setattr(os, "kill", lambda *_: None)
        patch.setattr(processes, "_children", lambda: [children[0].pid])
        assert processes.run(["sleep", "600"], os.environ, tmp_path, log, 0.1) is None
    children[0].kill()
    assert children[0].wait() == -signal.SIGKILL


def test_the_deadline_is_for_all(tmp_path: Path) -> None:
    _, records = run(tmp_path, item("hangs"), found(), deadline=MARGIN + 2)
    assert records["hangs"]["error"].endswith(" s (deadline)")
    assert (records["finds"]["status"], records["finds"]["error"]) == ("skipped", "deadline")


def test_what_hangs_does_not_take_what_is_reserved_for_later_items(tmp_path: Path) -> None:
    _, records = run(tmp_path, item("hangs"), found("later") | {"reserved": 200, "limit": 200}, deadline=MARGIN + 202)
    assert records["hangs"]["error"].endswith(" s (deadline)")
    assert records["later"]["status"] == "ok"


@given(
    st.lists(st.tuples(st.floats(0, 200), st.floats(0, 100), st.floats(0, 1)), min_size=1, max_size=20),
    st.floats(0, 100),
)
def test_each_item_gets_what_is_reserved_for_it_whatever_others_take(
    turns: list[tuple[float, float, float]], spare: float
) -> None:
    items = [Item("", "", "", limit=max(limit, reserved), reserved=reserved) for limit, reserved, _ in turns]
    left = sum(item.reserved for item in items) + spare
    for number, (item, (_, _, share)) in enumerate(zip(items, turns, strict=True)):
        allowed = allowance(item.limit, left, items[number + 1 :])
        assert item.reserved - 1e-6 <= allowed <= item.limit
        left -= share * allowed
    assert left >= -1e-6


@pytest.mark.parametrize("killer", ["kills_the_runner", "terminates_the_runner", "interrupts_the_runner"])
def test_results_are_whole_when_the_runner_ends_in_mid_item(tmp_path: Path, killer: str) -> None:
    done, records = run(tmp_path, found("first_one"), item(killer), found("last_one"))
    killed = killer == "kills_the_runner"
    assert done.returncode == (-signal.SIGKILL if killed else 130)
    assert [record["status"] for record in records.values()] == ["ok", "running" if killed else "failed", "not run"]
    files = in_archive(tmp_path)
    assert {"first/results.json", "first/report.md", "first/logs/first_one.log"} <= files.keys()
    assert files["first/results.json"] == (tmp_path / "results.json").read_bytes()
    assert len(list(tmp_path.iterdir())) <= 8
    assert all(path.is_file() for path in tmp_path.iterdir())
    if killed:
        return
    assert records[killer]["error"] == "interrupted"
    assert records[killer]["figures"] == {"half": 1}
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert [line.split()[0] for line in done.stdout.splitlines()[-5:-2]] == ["first_one", killer, "last_one"]


def test_a_folder_of_a_killed_run_is_used_again(tmp_path: Path) -> None:
    """What an earlier run was about to find is nobody's of this one."""
    run(tmp_path, item("kills_the_runner"))
    _, records = run(tmp_path, item("skipped", target="finds", needs=["references"]), found())
    assert "figures" not in records["skipped"]
    assert "log" not in records["skipped"]
    assert {path.name for path in tmp_path.iterdir()} == FILES


def test_long_logs_are_cut_in_the_middle(tmp_path: Path) -> None:
    _, records = run(tmp_path, item("talks", arguments=[str(3 << 20)]))
    log = in_archive(tmp_path)[f"first/{records['talks']['log']}"]
    assert log.startswith(b"first\n")
    assert log.endswith(b"\nlast\n")
    assert len(log) * len(ITEMS) < 0.75 * MOST_BYTES  # the rest is for figures


def test_served_engines_do_without_the_sandbox_where_its_probe_fails(tmp_path: Path) -> None:
    served = item("serves", target="tells_its_sandbox", serves=True)
    _, records = run(tmp_path, served, item("sandbox", target="raises"), served | {"name": "serves_later"})
    assert records["serves"]["figures"] == {"sandbox": "auto"}
    assert "note" not in records["serves"]
    assert records["serves_later"]["figures"] == {"sandbox": "off"}
    assert records["serves_later"]["note"] == "served with --sandbox off"


def test_a_condition_that_gave_no_answer_in_time_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_children", list)  # those of the tests are to live on
    monkeypatch.setitem(needs.CONDITIONS, "cold", needs.Condition("import time; time.sleep(600)", "no torch"))
    looking = needs.Needs(os.environ)
    assert looking.lacking(["cold"], 0.1) == "no torch (no answer within 0.1 s)"
    monkeypatch.setitem(needs.CONDITIONS, "cold", needs.Condition("", "no torch"))
    assert looking.lacking(["cold"], 600) is None


def test_what_a_condition_lacks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_children", list)  # those of the tests are to live on
    monkeypatch.setitem(needs.CONDITIONS, "absent", needs.Condition("import xyzzy", "packages are missing"))
    told = needs.Needs(os.environ).lacking(["absent"], 600)
    assert told == "packages are missing: ModuleNotFoundError: No module named 'xyzzy'"


def test_the_table_fits_into_what_is_kept_of_the_output(tmp_path: Path) -> None:
    results = Results(tmp_path, "first", {"device": "a GPU", "notes": ["a note"]}, list(ITEMS))
    for name in ITEMS:
        results.put(name, {"status": "failed", "seconds": 1.0, "error": "x" * 5000, "brief": "y" * 5000})
    text = report.as_text(results.content)
    assert len(text) < 12_000
    assert [line.split()[0] for line in text.splitlines()[2:-1]] == list(ITEMS)


def test_the_report_shows_what_was_found(tmp_path: Path) -> None:
    run(tmp_path, found(), item("raises"))
    shown = subprocess.run(
        [sys.executable, "-m", "bench.gpu.report", str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert shown[0] == "a GPU, commit abc"
    assert shown[2].split()[:2] == ["finds", "ok"]
    assert shown[2].endswith("found it")
    assert shown[3].split()[:2] == ["raises", "failed"]
    assert shown[3].endswith("ValueError: so it is; half 1")
    assert shown[-1] == "1 ok, 1 failed"
    page = (tmp_path / "report.md").read_text()
    assert "| `raises` | failed |" in page
    assert "## finds\n\n* found: it" in page


def test_the_most_telling_figures_are_in_a_line() -> None:
    rows = [{"step": "decode 1", "ms": 6.0, "of_floor": 1.2987}, {"step": "decode 8", "error": "no memory"}]
    figures = {"copy_gb_s": 3012.77, "same": True, "steps": rows, "kernels": [{"kernel": "a", "ms": 1}]}
    assert brief(figures) == "copy_gb_s 3013, same True, decode 1 1.299, decode 8 no memory"
    assert brief({"rates": {"1": 100, "2": 150.5}}) == "rates 1 100, rates 2 150.5"


def test_the_runner_needs_nothing_that_must_be_built_first() -> None:
    built = ("torch", "triton", "transformers", "flashcodec", "ipc_buffers")
    code = f"import sys; sys.modules |= dict.fromkeys({built}); import bench.gpu.command"
    subprocess.run([sys.executable, "-c", code], cwd=machine.ROOT, check=True)


def test_every_item_names_what_there_is() -> None:
    for found in of_part("all"):
        module, _, function = found.target.partition(":")
        tree = ast.parse((REPOSITORY / f"{module.replace('.', '/')}.py").read_text())
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert len(functions[function].args.args) == 1 + len(found.arguments) or functions[function].args.vararg, found
        assert set(found.needs) <= {*needs.CONDITIONS, *needs.PROGRAMS, *needs.FILES}, found


def test_the_page_says_of_every_item_whether_it_is_confirmed() -> None:
    page = (REPOSITORY / "docs/gpu.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(ITEMS)


@pytest.mark.parametrize("visit", VISITS)
def test_a_visit_s_reserved_times_fit_into_it(visit: str) -> None:
    """A cold import may take all that it needs, and whatever hangs, each item has its share."""
    items = of_visit(visit)
    assert allowance(needs.PATIENCE, 580 - MARGIN, items[1:]) >= 120
    assert all(0 <= item.reserved <= item.limit for item in items)
    names = [item.name for item in items]
    assert names.index("build") < names.index("sandbox") < min(names.index(item.name) for item in items if item.serves)
    dangerous = [name in ("faults", "mps_fault", "racecheck") for name in names]
    assert dangerous == list(accumulate(dangerous, max))


@pytest.mark.parametrize("chosen", [*(("part", part) for part in (*PARTS, "all")), *(("visit", v) for v in VISITS)])
def test_what_can_be_run_is_listed(
    chosen: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, name = chosen
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr(sys, "argv", ["run_all.py", f"--{kind}", name, "--list"])
    assert command.main() == 0
    expected = of_part(name) if kind == "part" else of_visit(name)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [item.name for item in expected]
    monkeypatch.setattr(sys, "argv", ["run_all.py", f"--{kind}", name, "--only", "nothing"])
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert f"no item nothing in {kind} {name}" in capsys.readouterr().err


def test_what_is_wrong_with_the_luggage_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setattr(machine, "commit", lambda carried: "abc")
    (tmp_path / ".venv").symlink_to("/nowhere")
    carried = tmp_path / "carry"
    assert [line.split()[1:4] for line in luggage.complaints(carried)] == [
        ["is", "a", "link:"],
        ["is", "not", "there:"],
    ]
    (tmp_path / ".venv").unlink()
    (carried / machine.PACKAGES_FOLDER).mkdir(parents=True)
    (carried / "commit").write_text("abc")
    (carried / "packages").write_text(cargo.contents())
    assert luggage.complaints(carried) == []
    (carried / "commit").write_text("def")
    (carried / "packages").write_text("something else")
    of_another, old = luggage.complaints(carried)
    assert "of commit def, and this tree of abc" in of_another
    assert old.endswith("carry.py would assemble other packages today")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "bench/gpu/run_all.py", "--visit", "first", "--out", str(tmp_path / "file/folder")]
    refused = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].endswith(f"error: --out {tmp_path}/file/folder: Not a directory")
