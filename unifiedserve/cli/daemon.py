"""Start a daemon as a process for a command, a benchmark or a test."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from unifiedserve.errors import ConfigError
from unifiedserve.parents_end import signal_parents_end

STEP = re.compile(r"^ *\d+\.\d s  ")  # a line on stderr about the start
READY = re.compile(r"^Serving .* at (http://\S+)$")  # what a daemon says when requests may come


class Daemon(NamedTuple):
    """Describe a daemon that is ready to answer."""

    url: str
    process: subprocess.Popen[str]


def serve_command(model: str | Path = "", *options: str) -> list[str]:
    """Return the command line that serves `model`, without a port; an empty model is the bundled one."""
    return [sys.executable, "-m", "unifiedserve.cli", "serve", *([str(model)] if model else []), *options]


@contextmanager
def daemon(model: str | Path = "", *options: str, log: IO[str] | None = None) -> Iterator[Daemon]:
    """Start a daemon on a free port, and yield it when it is ready. It ends by SIGTERM and is waited for.

    It also ends where this process is killed, or the thread that called this ends.

    Its log and its errors go to `log`, a file; without one to this process's stderr. Raises ConfigError if it ends
    before it is ready, or does not end cleanly.
    """
    command = [*serve_command(model, *options), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=_end_with_parent)
    try:
        yield Daemon(_wait_ready(process), process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate()
    if process.returncode != 0:
        raise ConfigError(f"the server ended with code {process.returncode}")


def _end_with_parent() -> None:
    signal_parents_end(signal.SIGTERM)


def _wait_ready(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if match := READY.match(line):
            return match[1]
    raise ConfigError(f"the server ended with code {process.wait()} before it was ready")
