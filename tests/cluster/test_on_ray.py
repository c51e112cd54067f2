"""A cluster on a real Ray, with real engines: it comes up, mends itself, changes and goes. Slow: with --long only."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

Cluster = pytest.importorskip("ray.cluster_utils", reason='the extra "cluster" is not installed').Cluster
pytestmark = pytest.mark.long

SMALL = """
[router]
ports = [{port}]
[[pool]]
name = "a"
count = {count}
[pool.serve]
torch-threads = 1
vision-threads = 1
kv-cache-mib = {cache}
patch-buffer-mib = 32
visual-buffer-mib = 16
visual-cache-mib = 16
"""


class Commands:
    """`unifiedserve cluster`, with a Ray of its own."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self._folder = folder
        # sockets of Ray lie there, whose paths must be short
        self._environment = {**os.environ, "RAY_TMPDIR": str(folder), "RAY_AUTH_MODE": "token"}
        self._environment |= environment

    def run(self, *arguments: str) -> str:
        """Return what a command prints; fail if it does."""
        command = [sys.executable, "-m", "unifiedserve.cli", "cluster", *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def up(self, port: int, count: int, cache: int = 64, resources: str = "") -> None:
        file = self._folder / "cluster.toml"
        file.write_text(SMALL.format(port=port, count=count, cache=cache) + resources)
        assert f"http://127.0.0.1:{port}" in self.run("up", str(file))

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.run("status", "--json")))

    def processes(self) -> list[psutil.Process]:
        """Return all processes that belong to this Ray."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and process.environ().get("RAY_TMPDIR") == str(self._folder):
                    found.append(process)
        return found

    def nodes(self) -> list[dict[str, Any]]:
        (pool,) = self.status()["pools"]
        return list(pool["nodes"])

    def until(self, is_so: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        while not is_so(nodes := self.nodes()):
            time.sleep(0.2)
        return nodes


@pytest.fixture
def commands() -> Iterator[Commands]:
    folder = Path(tempfile.mkdtemp(prefix="us-", dir="/tmp"))
    commands = Commands(folder, RAY_ADDRESS="")
    yield commands
    for process in commands.processes():
        process.kill()
    shutil.rmtree(folder)


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def ask(port: int, **more: Any) -> str:
    """Return the greedy answer to a question about a shape."""
    body = {
        "messages": [{"role": "user", "content": "What can you see?"}],
        "temperature": 0,
        "max_tokens": 16,
        **more,
    }
    answer = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, timeout=60.0)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def all_serve(count: int) -> Callable[[list[dict[str, Any]]], bool]:
    return lambda nodes: len(nodes) == count and all(node["phase"] == "serving" for node in nodes)


def actor_of(node: dict[str, Any]) -> int:
    """Return the process of Ray that has started a node's server."""
    parent = psutil.Process(node["pid"]).parent()
    assert parent is not None
    return parent.pid


def test_it_comes_up_mends_itself_changes_and_goes(commands: Commands, free_port: int) -> None:
    commands.up(free_port, count=2)
    expected = ask(free_port)

    first, second = commands.nodes()
    os.kill(first["pid"], signal.SIGKILL)  # a server
    assert ask(free_port) == expected
    nodes = commands.until(lambda nodes: all_serve(2)(nodes) and nodes[0]["pid"] != first["pid"])
    assert nodes[0]["restarts"] == 1
    os.kill(actor_of(second), signal.SIGKILL)  # what keeps one
    assert ask(free_port) == expected
    commands.until(lambda nodes: all_serve(2)(nodes) and nodes[1]["pid"] != second["pid"])
    assert not psutil.pid_exists(second["pid"])

    revision = nodes[0]["revision"]
    commands.up(free_port, count=2, cache=65)
    assert all(node["revision"] != revision for node in commands.nodes())
    assert ask(free_port) == expected
    commands.run("scale", "a", "1")
    commands.until(all_serve(1))
    assert ask(free_port) == expected

    commands.run("down")
    assert commands.processes() == []


def test_the_node_of_a_lost_machine_starts_on_another(
    tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_worker_niceness", "0")
    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        kinds = [machines.add_node(num_cpus=1, resources={name: 1}) for name in ("one", "other")]
        commands = Commands(tmp_path, RAY_ADDRESS=machines.address, RAY_AUTH_MODE="disabled")
        commands.up(free_port, count=1, resources="[pool.resources]\ncpus = 1\n")
        (before,) = commands.nodes()
        expected = ask(free_port)
        assert before["url"].startswith(f"http://{before['machine']}:")

        raylet = psutil.Process(actor_of(before)).parent()
        assert raylet is not None
        (lost,) = [kind for kind in kinds if _raylet_of(kind) == raylet.pid]
        machines.remove_node(lost, allow_graceful=False)
        (after,) = commands.until(lambda nodes: all_serve(1)(nodes) and nodes[0]["pid"] != before["pid"])
        assert not psutil.pid_exists(before["pid"])
        assert psutil.Process(actor_of(after)).ppid() in [_raylet_of(kind) for kind in kinds if kind is not lost]
        assert ask(free_port) == expected
        commands.run("down")
    finally:
        machines.shutdown()


def _raylet_of(machine: Any) -> int:
    (raylet,) = machine.all_processes["raylet"]
    return int(raylet.process.pid)
