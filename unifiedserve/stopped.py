"""Tells processes that a signal has stopped, which answer nobody, from those that take long."""

from contextlib import suppress
from pathlib import Path


def is_stopped(pid: int) -> bool:
    """Tell whether a signal has stopped a process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False
