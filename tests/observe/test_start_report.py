"""What a person who waits for the daemon is told, and what programs find in its log."""

import io
import json
import re
import subprocess
import threading

import pytest
from command_line import Failed

from unifiedserve.cli.daemon import serve_command
from unifiedserve.observe.start import StartReport, begin_step

LINE = re.compile(r"^ *(\d+\.\d) s  (.+)$")


class Told(io.StringIO):
    """Notes when a step was told again."""

    def __init__(self) -> None:
        super().__init__()
        self.again = threading.Event()

    def write(self, text: str) -> int:
        if "still" in text:
            self.again.set()
        return super().write(text)


def steps(text: str) -> list[str]:
    found = [LINE.match(line) for line in text.splitlines()]
    assert all(found)
    return [match[2] for match in found if match]


def test_each_step_is_told_with_its_time() -> None:
    told = io.StringIO()
    with StartReport(told):
        begin_step("reading")
        begin_step("writing")
    begin_step("nobody hears this")
    assert steps(told.getvalue()) == ["reading", "writing"]


def test_a_long_step_is_told_again() -> None:
    told = Told()
    with StartReport(told, patience=0.01):
        begin_step("loading the weights")
        assert told.again.wait(30)
    assert {*steps(told.getvalue())} == {"loading the weights", "still loading the weights"}


def test_programs_find_the_steps_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with StartReport(None):
        begin_step("reading")
    assert [record.getMessage() for record in caplog.records] == ["reading"]


TOO_MUCH = ("--port", "0", "--kv-cache-mib", "99999999")  # memory, which ends a start before there are workers


def check_start(told: list[str]) -> None:
    begun = [step for step in told if not step.startswith("still ")]
    assert begun[:2] == ["loading the program", "reading the bundled model"]


def test_a_daemon_tells_its_start(failed: Failed) -> None:
    code, out, err = failed("serve", *TOO_MUCH)
    assert (code, out) == (2, "")
    *lines, reason = err.splitlines()
    assert reason.startswith("unifiedserve: not enough memory")
    check_start(steps("\n".join(lines)))


def test_a_daemon_tells_its_start_in_json() -> None:
    command = serve_command("", *TOO_MUCH, "--log-format", "json")
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    *lines, reason = ended.stderr.splitlines()
    assert reason.startswith("unifiedserve: not enough memory")
    check_start([json.loads(line)["message"] for line in lines])
