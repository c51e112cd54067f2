"""Sides that are ended after each test, and every kind of carrier that runs here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from sides import MakeSide, Side, unique_name
from source_process import SourceProcess, StartSource

from ipc_buffers import Bell, MessageQueue, list_arenas


@pytest.fixture(params=["shared", "tcp", "nixl"])
def kind(request: pytest.FixtureRequest) -> str:
    """Return a kind of carrier; cuda_ipc needs a driver from a process's start on (test_cuda_ipc.py)."""
    if request.param == "nixl" and find_spec("nixl") is None:
        pytest.skip("NIXL is not installed")
    return str(request.param)


@pytest.fixture
def bell() -> Iterator[Bell]:
    """Return a bell that nobody hears."""
    queue = MessageQueue.create(unique_name(), 256)
    yield Bell(queue, b"")
    queue.unlink()


@pytest.fixture
def make_side() -> Iterator[MakeSide]:
    sides: list[Side] = []

    def make(*arguments: object, **options: object) -> Side:
        sides.append(Side(*arguments, **options))  # type: ignore[arg-type]
        return sides[-1]

    yield make
    for side in sides:
        side.end()


@pytest.fixture
def start_source() -> Iterator[StartSource]:
    """Start a process with a side, of which a test is told as `source_process.SourceProcess` says."""
    processes: list[SourceProcess] = []

    def start(*arguments: object) -> SourceProcess:
        processes.append(SourceProcess(*arguments))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        for segment in Path("/dev/shm").glob(f"unifiedserve-test-{process.pid}-*"):
            segment.unlink()


@pytest.fixture(autouse=True)
def nothing_left_in_shared_memory() -> Iterator[None]:
    yield
    assert [arena.name for arena in list_arenas() if arena.name.startswith(f"test-{os.getpid()}-")] == []
