"""A process with a side of its own, to be told what to do, killed or stopped.

`python source_process.py KIND TOKEN PATIENCE` answers each line [operation, arguments …] with one line.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any


class SourceProcess:
    """Such a process, as a test sees it."""

    def __init__(self, kind: str, token: str, patience: float = 300.0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), kind, token, str(patience)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
        )
        self.pid = self._process.pid
        self.address: str = self.ask("address")

    def ask(self, *request: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the source ended with {self._process.wait()}"
        return json.loads(line)

    def fill(self, name: str, count: int, value: int) -> tuple[list[int], list[int]]:
        """Take pages and fill them with a byte; return them and their epochs."""
        pages, epochs = self.ask("fill", name, count, value)
        return pages, epochs

    def fetch(self, address: str, name: str, pages: Sequence[int], epochs: Sequence[int]) -> tuple[str, list[int]]:
        """Have it read pages; return the error, and the first byte of each page."""
        error, first = self.ask("fetch", address, name, list(pages), list(epochs))
        return error, first

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


StartSource = Callable[..., SourceProcess]


def main() -> None:
    from sides import SETTING, Side

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    kind, token, patience = sys.argv[1:]
    side = Side(kind, replace(SETTING, token=token, patience=float(patience)))
    for line in sys.stdin:
        answer: object
        match json.loads(line):
            case ["address"]:
                answer = side.address
            case ["fill", name, count, value]:
                pages = side.take(name, count)
                side.bytes[name][pages] = value
                answer = pages, side.pools[name].epochs(pages).tolist()
            case ["free", name, pages]:
                answer = side.pools[name].release(pages)
            case ["fetch", address, name, pages, epochs]:
                from unifiedserve.carriers.base import Copy

                into = side.take(name, len(pages))
                done = side.fetch(address, Copy(name, pages, epochs, into))
                answer = done.error, side.bytes[name][into, 0].tolist()
            case ["begin", address, name, pages, epochs]:  # and leave it under way
                from unifiedserve.carriers.base import Copy

                answer = side.carrier.read(address, [Copy(name, pages, epochs, side.take(name, len(pages)))])
            case other:
                raise ValueError(other)
        print(json.dumps(answer), file=answers, flush=True)
    side.end()


if __name__ == "__main__":
    main()
