"""A daemon for one command alone."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from unifiedserve.errors import ConfigError

_READY = re.compile(r"^Serving .* at (http://\S+)$")


@contextmanager
def own_daemon(model: str) -> Iterator[str]:
    """The URL of a daemon on a free port, ready to answer; it is stopped and waited for at the end.

    Raises ConfigError if it ends before it is ready, or does not end cleanly.
    """
    command = [sys.executable, "-m", "unifiedserve.cli", "serve", *([model] if model else []), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield _wait_ready(process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate()
    if process.returncode != 0:
        raise ConfigError(f"the daemon ended with code {process.returncode}")


def _wait_ready(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if match := _READY.match(line):
            return match[1]
    raise ConfigError(f"the daemon ended with code {process.wait()} before it was ready")
