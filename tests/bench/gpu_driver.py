"""Runs items that a test gives: `python gpu_driver.py OUT DEADLINE ITEMS`, the items as JSON.

A process of its own, as the runner ends all processes below it. Its clock counts only limits that pass, and a limit
begins when an item has told something: how long a busy machine takes changes nothing.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from bench.gpu import command, machine, processes
from bench.gpu.item import Item


class Clock:
    """Counts the limits of what did not end within them."""

    def __init__(self) -> None:
        self.now = 0.0
        self._run = processes.run

    def monotonic(self) -> float:
        return self.now

    def run(self, *given: Any) -> int | None:
        """Run a command as the runner does; its limit is the last of what is given."""
        code = self._run(*given)
        self.now += given[-1] if code is None else 0.0
        return code


def late(told: Path) -> type[subprocess.Popen[bytes]]:
    """Return processes that are waited for from when there is the file in which they tell something."""

    class Late(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            while self.poll() is None and not told.exists():
                time.sleep(0.01)
            return super().wait(timeout)

    return Late


def main(out: Path, deadline: float, items: list[Item]) -> int:
    """Run items; looking at the machine would take seconds."""
    options = argparse.Namespace(
        out=out, deadline=deadline, carried=Path("/nonexistent"), sandbox="auto", visit="first", part="all"
    )
    clock = Clock()
    stopped = SimpleNamespace(monotonic=clock.monotonic)
    with (
        mock.patch.object(machine, "describe", return_value={"device": "a GPU", "commit": "abc"}),
        mock.patch.object(processes, "run", clock.run),
        mock.patch("bench.gpu.processes.subprocess.Popen", late(out / "running.json")),
        mock.patch("bench.gpu.command.time", stopped),
        mock.patch("bench.gpu.runner.time", stopped),
    ):
        return command.run(items, options)


if __name__ == "__main__":
    folder, seconds, given = sys.argv[1:]
    sys.exit(main(Path(folder), float(seconds), [Item(**{"meaning": "", **item}) for item in json.loads(given)]))
