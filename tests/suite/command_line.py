"""Commands that fail: what they say."""

import contextlib
import sys
from collections.abc import Callable

import httpx
import pytest

from unifiedserve.cli.app import main
from unifiedserve.cli.daemon import STEP


def the_line(code: object, out: str, err: str) -> str:
    """The one line on stderr of a command that fails with exit code 2, beside the steps of a start."""
    assert (code, out) == (2, "")
    (line,) = [line for line in err.splitlines() if not STEP.match(line)]
    assert line.startswith("unifiedserve: ")
    return line


Failed = Callable[..., tuple[object, str, str]]  # the `failed` fixture


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Failed:
    """Runs a command in this process, whose imports are done, and returns its exit code, stdout and stderr.

    What processes that it starts say counts, too.
    """

    def run(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["unifiedserve", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return (ended.value.code, *capfd.readouterr())

    return run


@pytest.fixture
def error_of(failed: Failed) -> Callable[..., str]:
    """Runs a command in this process, and returns the line with which it fails."""
    return lambda *arguments: the_line(*failed(*arguments))


def wait_until_closed(url: str) -> None:
    """Returns when the server takes no more connections."""
    with contextlib.suppress(httpx.TransportError):
        while True:
            httpx.get(f"{url}/health")
