"""A node: the server that it keeps running, and what it tells of it."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from unifiedserve import __version__
from unifiedserve.cluster.nodes import node as node_module
from unifiedserve.cluster.nodes import process as process_module
from unifiedserve.cluster.nodes.node import Node
from unifiedserve.cluster.nodes.reports import NodeReport, NodeSpec, Phase

SCRIPT = Path(__file__).with_name("server_script.py")


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes start the script, and are impatient."""
    monkeypatch.setattr(process_module, "child_command", lambda arguments: [sys.executable, str(SCRIPT), *arguments])
    monkeypatch.setattr(node_module, "_SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr(node_module, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(node_module, "_UNTIL_ROUTERS_KNOW", 0.01)


def spec_of(how: str, told: Path, version: str = __version__) -> NodeSpec:
    return NodeSpec(
        name="a-0",
        pool="a",
        revision="r",
        version=version,
        command=(how, str(told)),
        drain_timeout=1.0,
        host="",
    )


async def until(node: Node, is_so: Callable[[NodeReport], bool]) -> NodeReport:
    """Return the first report of a node that is so."""
    while not is_so(report := await node.report()):
        await asyncio.sleep(0.005)
    return report


async def until_told(told: Path, lines: int) -> None:
    """Return when servers have been told so many lines."""
    while not told.exists() or len(told.read_bytes().splitlines()) < lines:
        await asyncio.sleep(0.005)


async def stop(node: Node) -> None:
    await node.drain()
    await until(node, lambda report: report.phase is Phase.STOPPED)


async def test_it_serves_until_it_drains(tmp_path: Path) -> None:
    node = Node(spec_of("serve", tmp_path / "told"), "127.0.0.1")
    assert (await node.report()).phase is Phase.STARTING
    serving = await until(node, lambda report: report.phase is Phase.SERVING)
    assert serving.url.startswith("http://127.0.0.1:")
    await node.drain()
    assert (await node.report()).phase is Phase.DRAINING
    stopped = await until(node, lambda report: report.phase is Phase.STOPPED)
    assert (stopped.url, stopped.pid, stopped.restarts) == ("", 0, 0)
    assert not psutil.pid_exists(serving.pid)


async def test_a_server_that_is_killed_is_started_again_and_told_again(tmp_path: Path) -> None:
    told = tmp_path / "told"
    node = Node(spec_of("serve", told), "127.0.0.1")
    first = await until(node, lambda report: report.phase is Phase.SERVING)
    await node.tell(b"members\n")
    await node.tell(b"members\n")  # as they are: not told twice
    await until_told(told, 1)
    os.kill(first.pid, signal.SIGKILL)
    second = await until(node, lambda report: report.restarts == 1 and report.phase is Phase.SERVING)
    assert (second.pid != first.pid, second.url != first.url) == (True, True)
    assert "-9" in second.reason
    await until_told(told, 2)
    await stop(node)
    assert told.read_bytes().splitlines() == [b"members"] * 2


async def test_one_that_ends_again_and_again_says_why(tmp_path: Path) -> None:
    node = Node(spec_of("die", tmp_path / "told"), "127.0.0.1")
    assert (await until(node, lambda report: report.restarts > 1)).reason == "it is over"
    await stop(node)


async def test_one_that_cannot_start_as_configured_is_not_started_again(tmp_path: Path) -> None:
    node = Node(spec_of("refuse", tmp_path / "told"), "127.0.0.1")
    failed = await until(node, lambda report: report.phase is Phase.FAILED)
    assert (failed.reason, failed.restarts) == ("there is no such model", 0)
    await stop(node)


async def test_one_that_answers_nothing_is_killed_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "_SILENCE_SECONDS", 0.2)
    node = Node(spec_of("mute", tmp_path / "told"), "127.0.0.1")
    assert "-9" in (await until(node, lambda report: report.restarts > 0)).reason
    await stop(node)


async def test_one_for_which_there_is_no_process_is_started_once_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = asyncio.create_subprocess_exec

    async def fail(*arguments: object, **options: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fail)
    node = Node(spec_of("serve", tmp_path / "told"), "127.0.0.1")
    failing = await until(node, lambda report: report.restarts > 0)
    assert failing.reason == "its server cannot be started: Resource temporarily unavailable"
    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    await until(node, lambda report: report.phase is Phase.SERVING)
    await stop(node)


async def test_one_that_writes_a_long_line_is_kept_running(tmp_path: Path) -> None:
    node = Node(spec_of("talk", tmp_path / "told"), "127.0.0.1")
    first = await until(node, lambda report: report.phase is Phase.SERVING)
    os.kill(first.pid, signal.SIGKILL)
    await until(node, lambda report: report.restarts == 1 and report.phase is Phase.SERVING)
    await stop(node)


async def test_one_whose_output_another_process_holds_open_stops_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has ended by itself; what it started ends after the time that stopping it may take."""
    monkeypatch.setattr(process_module, "_TO_STOP", -0.9)  # a tenth of a second is left
    node = Node(spec_of("leave", tmp_path / "told"), "127.0.0.1")
    report = await until(node, lambda report: bool(report.pid))
    while psutil.pid_exists(report.pid):
        await asyncio.sleep(0.005)
    await stop(node)


async def test_another_version_is_refused(tmp_path: Path) -> None:
    node = Node(spec_of("serve", tmp_path / "told", version="9.9"), "10.0.0.7")
    failed = await until(node, lambda report: report.phase is Phase.FAILED)
    assert failed.reason == f"10.0.0.7 has unifiedserve {__version__}, the cluster 9.9"
    assert failed.pid == 0


def test_a_command_ends_with_who_started_it() -> None:
    """The parent dies at once by a signal, as a node's process may; its child must not stay."""
    code = (
        "import os, signal, subprocess\n"
        "from unifiedserve.cluster.nodes.child import child_command\n"
        "child = subprocess.Popen(child_command(('serve', '--port=0')))\n"
        "print(child.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert parent.returncode == -signal.SIGKILL
    child = int(parent.stdout)
    while _lives(child):
        time.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
