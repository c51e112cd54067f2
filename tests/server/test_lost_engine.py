"""A server whose workers die again and again ends by itself, so that what supervises it starts another one."""

import contextlib
import subprocess
import threading
from pathlib import Path

import httpx
import psutil

from unifiedserve.cli.daemon import READY, serve_command


def worker_of(server: psutil.Process) -> psutil.Process | None:
    """The worker that decodes videos, if it runs."""
    found = [each for each in server.children(recursive=True) if each.name() == "us:vision"]
    return found[0] if found else None


def is_up(client: httpx.Client) -> bool:
    """Tell whether all workers run; raises httpx.TransportError once the server is gone."""
    return client.get("/health").status_code == 200


def test_it_ends_with_code_1_and_says_why(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [*serve_command("", "--kv-cache-mib", "64", "--placement", "monolithic"), "--port", "0"]
    with log.open("w") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as server:
        assert server.stdout is not None
        ready = READY.match(server.stdout.readline())
        assert ready is not None
        between_looks = threading.Event()
        with httpx.Client(base_url=ready[1]) as client, contextlib.suppress(httpx.TransportError):  # it has gone
            while server.poll() is None:
                if is_up(client) and (worker := worker_of(psutil.Process(server.pid))) is not None:
                    worker.kill()
                between_looks.wait(0.05)
        assert server.wait() == 1
    last = log.read_text().splitlines()[-1]
    assert last.startswith("unifiedserve: the server ends: worker vision ended with code -9, after 5 restarts")
