"""Commands that fail: what they say."""

import sys
from collections.abc import Callable

import pytest

from unifiedserve.cli.app import main
from unifiedserve.cli.daemon import STEP


def the_line(code: object, out: str, err: str) -> str:
    """The one line on stderr of a command that fails with exit code 2, beside the steps of a start."""
    assert (code, out) == (2, "")
    (line,) = [line for line in err.splitlines() if not STEP.match(line)]
    assert line.startswith("unifiedserve: ")
    return line


@pytest.fixture
def error_of(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command in this process, whose imports are done, and returns the line with which it fails.

    What processes that it starts say on stderr counts, too.
    """

    def fail(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["unifiedserve", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return the_line(ended.value.code, *capfd.readouterr())

    return fail
