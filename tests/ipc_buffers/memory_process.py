"""Processes that work with memories and page pools as a test tells them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("memory_server.py")


class RefusedError(Exception):
    """An operation that has raised: the type of what it raised, and the text."""


class MemoryProcess:
    """A process of memory_server.py; `process.operation(arguments)` is done there."""

    def __init__(self, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        if operation.startswith("_"):
            raise AttributeError(operation)
        return lambda *arguments: self._ask(operation, *arguments)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def finish(self) -> int:
        """Let it end by itself; return its exit code."""
        self._requests.close()
        return self._process.wait()

    def _ask(self, *request: object) -> Any:
        self._requests.write(json.dumps(request) + "\n")
        self._requests.flush()
        line = self._answers.readline()
        assert line, f"the process ended with {self._process.wait()}"
        answer = json.loads(line)
        while isinstance(answer.get("value"), dict) and answer["value"].keys() <= {"value", "error"}:
            answer = answer["value"]  # of a thread or a fork
        if "error" in answer:
            raise RefusedError(answer["error"])
        return answer["value"]


def remove_names(prefix: str) -> None:
    """Remove what processes that were killed have left, under names that begin so."""
    for segment in Path("/dev/shm").glob(f"unifiedserve-{prefix}*"):
        segment.unlink()


StartProcess = Callable[..., MemoryProcess]
