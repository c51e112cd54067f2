"""Processes that end when their time does, with all that they have started."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

PR_SET_CHILD_SUBREAPER = 36
GRACE = 5.0  # seconds to die in: what hangs in a driver may outlive SIGKILL


def adopt_orphans() -> None:
    """Become the parent of whatever loses its own below this process, daemons too, so that it can be found."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, log: IO[bytes], limit: float
) -> int | None:
    """Run a command in a process group of its own; return its exit code, or None if its time was up.

    Whatever way it ends, also by an exception here, the group and what has left it are killed. What cannot be killed
    is left behind.
    """
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        cwd=folder,
        start_new_session=True,
    )
    try:
        return child.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)
        _end_orphans()


def _end_orphans() -> None:
    """Kill children of this process until there are none: those that it adopted, and then theirs."""
    end = time.monotonic() + GRACE
    while (orphans := _children()) and time.monotonic() < end:
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


def _children() -> list[int]:
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]
