"""Arenas that are removed after each test, and worker processes that are ended after it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import fake_cuda
import pytest
from ipc_processes import MakeArena, MakePool, MakeQueue, StartWorker, Worker
from memory_process import MemoryProcess, StartProcess, remove_names

from ipc_buffers import Arena, MessageQueue, PagePool, list_arenas

_numbers = itertools.count()


def unique_name() -> str:
    return f"test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def start() -> Iterator[StartWorker]:
    workers: list[Worker] = []

    def start_worker(function: str, *arguments: object) -> Worker:
        workers.append(Worker(function, *arguments))
        return workers[-1]

    yield start_worker
    for worker in workers:
        worker.kill()


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_cuda.build(tmp_path_factory.mktemp("fake-cuda"))


@pytest.fixture
def start_process(fake_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartProcess]:
    """Start a process that sees the stand-in's GPU; what it leaves behind is removed."""
    fake_cuda.use(fake_library, tmp_path, monkeypatch)
    processes: list[MemoryProcess] = []

    def begin(**environment: str) -> MemoryProcess:
        processes.append(MemoryProcess(**environment))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
    remove_names(f"test-{os.getpid()}-")


@pytest.fixture
def removal() -> Iterator[ExitStack]:
    """Callbacks to be called when the test ends."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def make_arena(removal: ExitStack) -> MakeArena:
    def make(size: int) -> Arena:
        arena = Arena.create(unique_name(), size)
        removal.callback(arena.unlink)
        return arena

    return make


@pytest.fixture
def make_pool(removal: ExitStack) -> MakePool:
    def make(num_pages: int, page_bytes: int) -> PagePool:
        pool = PagePool.create(unique_name(), num_pages, page_bytes)
        removal.callback(pool.unlink)
        return pool

    return make


@pytest.fixture
def make_queue(removal: ExitStack) -> MakeQueue:
    def make(capacity: int) -> MessageQueue:
        queue = MessageQueue.create(unique_name(), capacity)
        removal.callback(queue.unlink)
        return queue

    return make


@pytest.fixture(autouse=True)
def nothing_left_in_shared_memory() -> Iterator[None]:
    yield
    mine = f"test-{os.getpid()}-"
    assert [arena.name for arena in list_arenas() if arena.name.startswith(mine)] == []
