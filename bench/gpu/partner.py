"""A second process that does what an item tells it: contexts, clients of MPS and importers of memory are processes.

`Partner("module:Class")` makes an object of the class there; `partner.method(arguments)` calls it, in JSON.
"""

import importlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any


class PartnerError(Exception):
    """What a partner raised, or how it ended: one line."""


class Partner:
    """One such process; it is killed when the `with` ends. Its standard error goes to the item's log.

    PartnerError is raised if an answer takes more than `patience` seconds: a driver may hang. The process is killed
    then, because a late answer would be taken for that of the next call.
    """

    def __init__(self, target: str, environment: Mapping[str, str] | None = None, patience: float = 60.0) -> None:
        self._patience = patience
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "bench.gpu.partner", target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._answers = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> "Partner":
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._orders.close()
        self._answers.close()

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)
        return lambda *arguments: self.begin(method, *arguments)()

    def begin(self, method: str, *arguments: object) -> Callable[[], Any]:
        """Have it start with something; the result is a call that waits for what comes of it."""
        try:
            self._orders.write(json.dumps([method, *arguments]) + "\n")
            self._orders.flush()
        except OSError:
            raise PartnerError(f"the process ended with {self._process.wait()}") from None
        return self._answer

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _answer(self) -> Any:
        if not select.select([self._answers], [], [], self._patience)[0]:
            self._process.kill()
            raise PartnerError(f"no answer within {self._patience:g} s")
        line = self._answers.readline()
        if not line:
            raise PartnerError(f"the process ended with {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise PartnerError(answer["error"])
        return answer["value"]


def outcome(call: Callable[..., Any], *arguments: object) -> Any:
    """Return what comes of a partner's call, or as a text why nothing does."""
    try:
        return call(*arguments)
    except PartnerError as error:
        return str(error)


def serve(target: str) -> None:
    """Do what standard input says, as the partner."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    module, _, name = target.partition(":")
    served = getattr(importlib.import_module(module), name)()
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        try:
            answer = {"value": getattr(served, method)(*arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    serve(sys.argv[1])
