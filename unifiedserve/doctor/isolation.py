"""Probe in a process of its own: a driver that hangs or crashes must not take the doctor with it.

`call("nvdec:decoder_caps")` runs that function of this package in a child, which prints its JSON result as
the last line of its output.
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ENTRY = "from unifiedserve.doctor.isolation import answer; answer()"


class ProbeError(Exception):
    """Signal a probe that could not finish: one line that says why."""


def call(target: str, *args: str, timeout: float = 30.0, env: Mapping[str, str] | None = None) -> Any:
    """Return what `module:function(*args)` returns, run in a child for at most `timeout` seconds.

    Raises ProbeError when the child raises, dies or takes longer; its descendants are killed with it.
    """
    with subprocess.Popen(
        command(target, *args),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**child_environment(), **(env or {})},
        start_new_session=True,
    ) as child:
        try:
            out, err = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise ProbeError(f"no answer within {timeout:g} s") from None
        finally:
            _kill_group(child.pid)
    return result_of(child.returncode, out, err)


def command(target: str, *args: str) -> list[str]:
    """Return the command line that runs `module:function` of this package."""
    return [sys.executable, "-P", "-c", ENTRY, target, *args]


def child_environment() -> dict[str, str]:
    """Return this process's environment, with our package importable wherever the child starts."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def result_of(returncode: int, out: str, err: str) -> Any:
    """Return the result that a finished child printed; raises ProbeError with its reason when it has none."""
    if returncode < 0:
        raise ProbeError(f"the probe was killed by {signal.Signals(-returncode).name}")
    try:
        reply = json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        raise ProbeError((err.strip().splitlines() or ["the probe printed no result"])[-1]) from None
    if "error" in reply:
        raise ProbeError(reply["error"])
    return reply["result"]


def answer() -> None:
    """Run the function that the command line names and print its result, as the child."""
    target, *args = sys.argv[1:]
    module, _, function = target.partition(":")
    reply: dict[str, Any]
    try:
        reply = {"result": getattr(importlib.import_module(f"{__package__}.{module}"), function)(*args)}
    except Exception as error:
        reply = {"error": str(error) or type(error).__name__}
    print("\n" + json.dumps(reply), flush=True)
