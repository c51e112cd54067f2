"""Contestants in processes of their own, and the rounds in which they take turns."""

import contextlib
import dataclasses
import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from contestant import Task
from peers import Contestant, folder_of

Result = dict[str, Any]  # contestant.py's answer


class Contender:
    """A contestant's process. Once it has failed it is gone, and `failure` says why."""

    def __init__(self, contestant: Contestant, folder: Path, timeout: float) -> None:
        self._timeout = timeout
        self.failure: str | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        script = Path(__file__).with_name("contestant.py")
        module = contestant.module if "." in contestant.module else f"peers.{contestant.module}"
        self._process = subprocess.Popen(
            [interpreter(contestant, folder), str(script), module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment(contestant, folder),
            start_new_session=True,
        )
        if contestant.package is not None and not folder_of(contestant.package, folder).exists():
            self.fail("not installed")
        else:
            self._answer()

    def run(self, task: Task) -> Result | None:
        """Run the task; None if it failed."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(dataclasses.asdict(task)).encode() + b"\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Result | None:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], self._timeout)[0]:
            self.fail(f"timed out after {self._timeout:.0f} s")
            return None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self.fail(f"crashed with {f'signal {-code}' if code < 0 else f'code {code}'}{self._last_words()}")
            return None
        result: Result = json.loads(line)
        if "error" in result:
            self.fail(result["error"])
            return None
        return result

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        return f": {lines[-1][:160]}" if lines else ""

    def fail(self, reason: str) -> None:
        self.failure = reason
        self.close()

    def close(self) -> None:
        """End the process and those that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        self._errors.close()


def interpreter(contestant: Contestant, folder: Path) -> str:
    """Return the Python of a contestant: its own, its virtual environment's or this program's."""
    if contestant.python is not None or contestant.package is None:
        return contestant.python or sys.executable
    own = folder_of(contestant.package, folder).absolute() / "bin" / "python"
    return str(own if own.exists() else sys.executable)


def modules_of(package: str, folder: Path) -> Path:
    """Return the folder of a distribution's modules, which an environment has further in."""
    home = folder_of(package, folder)
    return next(home.glob("lib/python*/site-packages"), home)


def environment(contestant: Contestant, folder: Path) -> dict[str, str]:
    """Return a contestant's environment: its folder's modules, programs and libraries first."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # only the comparison multiplies, and small matrices
    if contestant.package is None:
        return environment
    home = folder_of(contestant.package, folder).absolute()
    libraries = [str(path) for path in home.glob("*.libs")]
    before = {"PYTHONPATH": [str(home)], "PATH": [str(home / "bin")], "LD_LIBRARY_PATH": libraries}
    for name, paths in before.items():
        environment[name] = os.pathsep.join([*paths, *filter(None, [environment.get(name)])])
    return environment
