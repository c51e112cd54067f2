from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ipc_processes import MakeArena, StartWorker

from ipc_buffers import Arena, ArenaError, MessageQueue, PagePool, list_arenas, remove_stale_arenas

VERSION_OFFSET, READY_OFFSET = 8, 48


def segment(arena: str) -> Path:
    return Path("/dev/shm") / f"unifiedserve-{arena}"


def entry(name: str) -> tuple[str, int, int, bool] | None:
    for arena in list_arenas():
        if arena.name == name:
            return arena.kind, arena.size, arena.pid, arena.alive
    return None


def test_two_handles_see_the_same_zeroed_bytes(make_arena: MakeArena) -> None:
    arena = make_arena(10_000)
    other = Arena.attach(arena.name)
    assert (other.name, other.size, len(other.buffer())) == (arena.name, 10_000, 10_000)
    assert not any(other.buffer())
    arena.buffer()[9_999] = 7
    assert other.buffer()[9_999] == 7


def test_another_process_writes(make_arena: MakeArena, start: StartWorker) -> None:
    arena = make_arena(1_000)
    start("fill_arena", arena.name, 42).finish()
    assert bytes(arena.buffer()) == bytes([42]) * 1_000


def test_views_outlive_close_and_unlink(make_arena: MakeArena) -> None:
    arena = make_arena(8_000)
    array = np.frombuffer(arena.buffer(), np.int64)
    arena.close()
    arena.close()
    arena.unlink()
    array[:] = 5
    assert array.sum() == 5_000
    with pytest.raises(ArenaError, match="closed"):
        arena.buffer()


def test_memory_is_taken_at_creation(make_arena: MakeArena) -> None:
    arena = make_arena(1 << 20)
    assert segment(arena.name).stat().st_blocks * 512 >= 1 << 20


def test_an_arena_is_private_to_its_user(make_arena: MakeArena) -> None:
    assert segment(make_arena(1).name).stat().st_mode & 0o777 == 0o600


def test_too_little_shared_memory_is_told_with_numbers() -> None:
    with pytest.raises(ArenaError) as error:
        Arena.create(f"test-{os.getpid()}-huge", 1 << 45)
    needed, free = map(int, re.findall(r"(\d+) bytes", str(error.value)))
    assert needed >= 1 << 45 > free > 0
    assert "--shm-size" in str(error.value)
    assert "remount" in str(error.value)


def test_shared_memory_without_a_limit() -> None:
    """As podman mounts it for --shm-size=0: such a file system tells of no blocks."""
    script = "from ipc_buffers import Arena; Arena.create('unlimited', 1 << 20).unlink()"
    mounted = 'mount -t tmpfs -o size=0 tmpfs /dev/shm && exec "$0" -c "$1"'
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec"]
    if not shutil.which("unshare") or subprocess.run([*alone, mounted, "true"], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    done = subprocess.run([*alone, mounted, sys.executable, script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_name_is_used_once(make_arena: MakeArena) -> None:
    arena = make_arena(1)
    with pytest.raises(ArenaError, match="in use"):
        Arena.create(arena.name, 1)
    arena.unlink()
    Arena.create(arena.name, 1).unlink()


@pytest.mark.parametrize("name", ["", "a/b", "a b", "ä", "x" * 201, "a\0b"])
def test_bad_names(name: str) -> None:
    with pytest.raises(ValueError, match="must be 1 to 200"):
        Arena.create(name, 1)
    with pytest.raises(ValueError, match="must be 1 to 200"):
        Arena.attach(name)


@pytest.mark.parametrize("size", [-1, 0, 1 << 47])
def test_bad_sizes(size: int) -> None:
    with pytest.raises(ValueError, match="size"):
        Arena.create(f"test-{os.getpid()}-size", size)


def test_unlink_spares_a_later_arena_of_the_same_name(make_arena: MakeArena) -> None:
    first = make_arena(1)
    first.unlink()
    second = Arena.create(first.name, 1)
    first.unlink()
    Arena.attach(first.name)
    second.unlink()
    with pytest.raises(ArenaError, match="does not exist"):
        Arena.attach(first.name)


def test_attaching_to_something_else(make_arena: MakeArena, removal: ExitStack) -> None:
    stranger = segment(f"test-{os.getpid()}-stranger")
    removal.callback(stranger.unlink)
    name = stranger.name.removeprefix("unifiedserve-")
    for content in (b"", b"x" * 100, b"x" * 100_000):
        stranger.write_bytes(content)
        with pytest.raises(ArenaError, match="not an arena"):
            Arena.attach(name)
    assert entry(name) is None
    assert name not in remove_stale_arenas()

    arena = make_arena(1)
    with pytest.raises(ArenaError, match="holds a plain arena, not a page pool"):
        PagePool.attach(arena.name)
    with pytest.raises(ArenaError, match="holds a plain arena, not a message queue"):
        MessageQueue.attach(arena.name)


def test_attaching_to_a_damaged_arena(make_arena: MakeArena) -> None:
    arena = make_arena(10_000)
    whole = segment(arena.name).read_bytes()

    def attach_to(content: bytes) -> None:
        segment(arena.name).write_bytes(content)
        Arena.attach(arena.name)

    def patched(offset: int, value: int) -> bytes:
        return whole[:offset] + value.to_bytes(4, "little") + whole[offset + 4 :]

    attach_to(whole)
    arena.close()
    with pytest.raises(ArenaError, match="layout version 99"):
        attach_to(patched(VERSION_OFFSET, 99))
    with pytest.raises(ArenaError, match="still being created by process"):
        attach_to(patched(READY_OFFSET, 0))
    with pytest.raises(ArenaError, match="damaged"):
        attach_to(whole[:-1])


@pytest.mark.parametrize("kind", ["page pool", "message queue"])
def test_attaching_to_an_arena_with_a_damaged_layout(kind: str, removal: ExitStack) -> None:
    name = f"test-{os.getpid()}-damaged"
    attach: Callable[[str], object]
    if kind == "page pool":
        removal.callback(PagePool.create(name, 100, 64).unlink)
        attach = PagePool.attach
    else:
        removal.callback(MessageQueue.create(name, 1 << 12).unlink)
        attach = MessageQueue.attach
    with segment(name).open("r+b") as file:
        file.seek(4096)
        file.write((1 << 40).to_bytes(8, "little"))
    with pytest.raises(ArenaError, match="damaged"):
        attach(name)


def test_registry_tells_kinds_and_creators(removal: ExitStack, make_arena: MakeArena) -> None:
    arena = make_arena(123)
    assert entry(arena.name) == ("plain arena", 123, os.getpid(), True)
    pool = PagePool.create(f"test-{os.getpid()}-pool", 10, 64)
    removal.callback(pool.unlink)
    found = entry(pool.name)
    assert found is not None
    assert found[0] == "page pool"
    arena.unlink()
    assert entry(arena.name) is None


def test_only_the_arenas_of_the_dead_are_stale(make_arena: MakeArena, start: StartWorker) -> None:
    mine = make_arena(1)
    names = [f"test-{os.getpid()}-stale-{i}" for i in range(3)]
    workers = [start("hold_arena", name, 100) for name in names]
    for worker, name in zip(workers, names, strict=True):
        assert worker.read_line() == "created"
        assert entry(name) == ("plain arena", 100, worker.pid, True)
    view = Arena.attach(names[0]).buffer()

    workers[0].kill()
    workers[1].finish()
    assert [entry(name)[-1] for name in names] == [False, False, True]  # type: ignore[index]
    removed = remove_stale_arenas()
    assert set(removed) >= {names[0], names[1]}
    assert not {names[2], mine.name} & set(removed)
    view[:] = bytes(100)

    workers[2].process.kill()
    os.waitid(os.P_PID, workers[2].pid, os.WEXITED | os.WNOWAIT)
    assert names[2] in remove_stale_arenas(), "a zombie is dead"


def test_a_reused_pid_is_not_the_creator(make_arena: MakeArena) -> None:
    arena = make_arena(1)
    start_time_offset = 32
    with segment(arena.name).open("r+b") as file:
        file.seek(start_time_offset)
        file.write(bytes(8))
    assert entry(arena.name) == ("plain arena", 1, os.getpid(), False)


def test_a_creator_in_another_pid_namespace_counts_as_alive(make_arena: MakeArena) -> None:
    arena = make_arena(1)
    pid_offset = 24
    with segment(arena.name).open("r+b") as file:
        file.seek(pid_offset)
        file.write((1 << 30).to_bytes(8, "little") + bytes(8) + (1).to_bytes(8, "little"))
    assert entry(arena.name) == ("plain arena", 1, 1 << 30, True)


@given(writes=st.lists(st.tuples(st.integers(0, 999), st.binary(max_size=64), st.booleans())))
def test_any_writes_through_any_handle_are_seen_by_all(writes: list[tuple[int, bytes, bool]]) -> None:
    arena = Arena.create(f"test-{os.getpid()}-writes", 1_100)
    try:
        handles = [arena, Arena.attach(arena.name)]
        model = bytearray(1_100)
        for offset, content, handle in writes:
            handles[handle].buffer()[offset : offset + len(content)] = content
            model[offset : offset + len(content)] = content
            assert handles[not handle].buffer() == model
    finally:
        arena.unlink()
