"""Worker processes of these tests, and the types of their fixtures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ipc_buffers import Arena, MessageQueue, PagePool

WORKERS = Path(__file__).with_name("ipc_workers.py")


class Worker:
    """A process that runs a function of ipc_workers.py; the lines it prints are its answers."""

    def __init__(self, function: str, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WORKERS), function, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def read_line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, f"the worker ended with {self.process.wait()}"
        return line

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def finish(self) -> list[str]:
        """Closes the worker's input, waits for its end and returns the rest of what it printed."""
        output, _ = self.process.communicate()
        assert self.process.returncode == 0
        return output.split()


StartWorker = Callable[..., Worker]
MakeArena = Callable[[int], Arena]
MakePool = Callable[[int, int], PagePool]
MakeQueue = Callable[[int], MessageQueue]
