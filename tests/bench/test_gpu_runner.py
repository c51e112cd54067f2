"""The runner of the GPU bench keeps what it knows, whatever an item does, and holds its limits."""

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import needs, report
from bench.gpu.parts import PARTS, chosen

REPOSITORY = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("gpu_driver.py")
Records = dict[str, dict[str, Any]]


def run(out: Path, *items: dict[str, Any], deadline: float = 600, part: str = "probe") -> tuple[int, Records]:
    """Run items whose targets are in gpu_items.py; return the exit code and the records on disk, by name."""
    out.mkdir(exist_ok=True)
    given = [(part, item | {"target": f"gpu_items:{item['target']}"}) for item in items]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(DRIVER.parent)])}
    code = subprocess.run(
        [sys.executable, str(DRIVER), str(out), str(deadline), json.dumps(given)], env=environment, timeout=60
    ).returncode
    header, *records = [json.loads(line) for line in (out / f"{part}.jsonl").read_text().splitlines()]
    assert header == {"device": "a GPU", "commit": "abc"}
    return code, {record["item"]: record for record in records}


def item(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "target": name, **more}


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_an_item_s_end_is_its_own(tmp_path: Path) -> None:
    code, records = run(
        tmp_path,
        item("crashes"),
        item("raises"),
        item("skips"),
        item("needs_what_is_not_there", target="finds", needs=["references"]),
        item("finds", arguments=["it"]),
    )
    assert code == 0
    assert {name: record["status"] for name, record in records.items()} == {
        "crashes": "failed",
        "raises": "failed",
        "skips": "skipped",
        "needs_what_is_not_there": "skipped",
        "finds": "ok",
    }
    assert records["crashes"]["error"] == f"ended by signal {signal.SIGSEGV.value}"
    assert records["crashes"]["figures"] == records["raises"]["figures"] == {"half": 1}
    assert "last words" in records["crashes"]["tail"]
    assert "last words" in (tmp_path / records["crashes"]["log"]).read_text()
    assert records["raises"]["error"] == "ValueError: so it is"
    assert records["skips"]["error"] == "nothing to do here"
    assert records["needs_what_is_not_there"]["error"].startswith("no references in /nonexistent")
    assert records["finds"]["figures"] == {"found": "it"}


def test_what_hangs_or_stays_is_ended(tmp_path: Path) -> None:
    """Its group, and also what has left that."""
    _, records = run(tmp_path, item("hangs", limit=2), item("leaves_a_daemon"))
    assert records["hangs"]["status"] == "timeout"
    assert records["hangs"]["error"] == "not done within 2 s"
    assert all(map(is_gone, records["hangs"]["figures"]["pids"]))
    assert records["leaves_a_daemon"]["status"] == "ok"
    assert is_gone(records["leaves_a_daemon"]["figures"]["pid"])


def test_the_deadline_is_for_all(tmp_path: Path) -> None:
    _, records = run(tmp_path, item("hangs"), item("finds", arguments=["it"]), deadline=5)
    assert records["hangs"]["error"] == "not done within 2 s (deadline)"
    assert (records["finds"]["status"], records["finds"]["error"]) == ("skipped", "deadline")


def test_records_are_on_disk_when_the_runner_dies(tmp_path: Path) -> None:
    code, records = run(tmp_path, item("finds", arguments=["it"]), item("kills_the_runner"))
    assert code == -signal.SIGKILL
    assert list(records) == ["finds"]


def test_an_interrupt_leaves_what_is_known(tmp_path: Path) -> None:
    code, records = run(tmp_path, item("interrupts_the_runner"), item("finds", arguments=["it"]))
    assert code == 130
    assert list(records) == ["interrupts_the_runner"]
    assert records["interrupts_the_runner"]["error"] == "interrupted"
    assert records["interrupts_the_runner"]["figures"] == {"half": 1}


def test_the_report_shows_parts_that_are_there(tmp_path: Path) -> None:
    run(tmp_path, item("finds", arguments=["it"]))
    run(tmp_path, item("raises"), part="core")
    with (tmp_path / "core.jsonl").open("a") as journal:
        journal.write('{"item": "cut o')
    text, records = report.of_folder(tmp_path)
    lines = text.splitlines()
    assert lines[0] == "a GPU, commit abc"
    assert lines[1].split()[:2] == ["finds", "ok"]
    assert lines[1].endswith("found it")
    assert lines[4].split()[:2] == ["raises", "failed"]
    assert lines[4].endswith("ValueError: so it is")
    assert lines[-1] == "1 ok, 1 failed"
    page = report.as_markdown(records)
    assert "| `raises` | failed |" in page
    assert "## finds\n\n* found: it" in page


def test_every_item_names_what_there_is() -> None:
    for _, found in chosen("all", []):
        module, _, function = found.target.partition(":")
        tree = ast.parse((REPOSITORY / f"{module.replace('.', '/')}.py").read_text())
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert len(functions[function].args.args) == 1 + len(found.arguments) or functions[function].args.vararg, found
        assert set(found.needs) <= {*needs.CONDITIONS, *needs.PROGRAMS, *needs.FILES}, found


@pytest.mark.parametrize("part", [*PARTS, "all"])
def test_what_can_be_run_is_listed(part: str) -> None:
    command = [sys.executable, "bench/gpu/run_all.py", "--part", part]
    listed = subprocess.run([*command, "--list"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert [line.split()[1] for line in listed.stdout.splitlines()] == [found.name for _, found in chosen(part, [])]
    refused = subprocess.run([*command, "--only", "nothing"], cwd=REPOSITORY, capture_output=True, text=True)
    assert refused.returncode == 2
    assert f"no item nothing in part {part}" in refused.stderr
