"""Test MPS: a control daemon of our own, two processes that compute under it, and an orderly end."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from unifiedserve.doctor.check import Check, Status
from unifiedserve.doctor.cuda_driver import CudaError, Driver
from unifiedserve.doctor.isolation import ProbeError, call, child_environment, command, result_of
from unifiedserve.doctor.libraries import find_program

CONTROL = "nvidia-cuda-mps-control"
SIZE = 16 * 2**20
WORD = 0x5EED0003
REMEDY = "stages will share the GPU by time slices: check the compute mode and the daemon's log"


def probe() -> list[Check]:
    if find_program(CONTROL) is None:
        return [Check("MPS", f"not tested: no {CONTROL}", Status.MISSING)]
    with tempfile.TemporaryDirectory(prefix="mps-", ignore_cleanup_errors=True) as root:
        env = {"CUDA_MPS_PIPE_DIRECTORY": f"{root}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{root}/log"}
        try:
            result = call("mps:self_test", timeout=60, env=env)
        except ProbeError as error:
            return [Check("MPS", f"failed: {error}", Status.WARN, REMEDY, details={"log": _log(root)})]
        finally:
            stop(env)
    return [Check("MPS", f"{len(result['clients'])} processes computed under one server", details=result)]


def self_test() -> dict[str, Any]:
    """Start the daemon of the environment's folders, and run two clients at once. The daemon must know both."""
    for variable in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
        Path(os.environ[variable]).mkdir(parents=True)
    subprocess.run([str(find_program(CONTROL)), "-d"], check=True, capture_output=True, timeout=20)
    with _client() as first, _client() as second:
        pids = [_wait_ready(client) for client in (first, second)]
        servers = control("get_server_list")
        known = [pid for server in servers for pid in control(f"get_client_list {server}")]
        for client in (first, second):
            _finish(client)
    if not set(map(str, pids)) <= set(known):
        raise CudaError(f"processes {pids} computed, but the daemon's servers {servers} know {known}")
    return {"clients": pids, "servers": servers}


def client() -> int:
    """Compute something, say so, and stay connected until standard input ends."""
    driver = Driver()
    with driver.context(), driver.memory(SIZE) as pointer:
        driver.fill(pointer, WORD, SIZE)
        if not driver.filled_with(pointer, WORD, SIZE):
            raise CudaError("memory does not hold what was written")
        print("ready", flush=True)
        sys.stdin.read()
    return os.getpid()


def control(order: str, env: dict[str, str] | None = None) -> list[str]:
    """Return the words that the control program answers to one order."""
    done = subprocess.run(
        [str(find_program(CONTROL))],
        input=order + "\n",
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=15,
    )
    return done.stdout.split()


def stop(env: dict[str, str]) -> None:
    """End the daemon; one that does not answer is killed by the number in its pid file."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        control("quit -t 5", env)
    with contextlib.suppress(OSError, ValueError):
        pid = int(Path(env["CUDA_MPS_PIPE_DIRECTORY"], f"{CONTROL}.pid").read_text())
        if CONTROL in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(pid, signal.SIGKILL)


def _client() -> subprocess.Popen[str]:
    return subprocess.Popen(
        command("mps:client"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=child_environment(),
    )


def _wait_ready(client: subprocess.Popen[str]) -> int:
    assert client.stdout is not None
    if client.stdout.readline().strip() != "ready":
        _finish(client)
    return client.pid


def _finish(client: subprocess.Popen[str]) -> None:
    """Let a client end; raises ProbeError when it did not do its work."""
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.close()
    out = client.stdout.read()
    result_of(client.wait(), out, "")


def _log(root: str) -> str:
    """Return the end of the daemon's logs."""
    files = sorted(Path(root, "log").glob("*.log"))
    return "\n".join(file.read_text(errors="replace")[-2000:] for file in files)
