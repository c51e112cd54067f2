"""Memory that shows bytes of a file: shared without a copy, never written to, and found without the file's name."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from ipc_processes import StartWorker

from ipc_buffers import ArenaError, Memory, PagePool, list_arenas

PAGE = 4096
SIZE = 3 * PAGE + 17
HEADER = b"h" * PAGE
BYTES = bytes(index * 7 % 251 for index in range(SIZE))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(HEADER + BYTES + b"the rest")
    return path


@pytest.fixture
def memory(file: Path, removal: ExitStack) -> Memory:
    memory = Memory.map_file(f"test-{os.getpid()}-file", str(file), PAGE, SIZE, b"what it is")
    removal.callback(memory.unlink)
    return memory


def test_it_shows_the_bytes_and_takes_none(memory: Memory) -> None:
    assert (memory.nbytes, memory.place, memory.manifest, memory.writable) == (SIZE, "host", b"what it is", False)
    assert memory.read(0, SIZE) == np.from_dlpack(memory).tobytes() == BYTES
    (arena,) = [arena for arena in list_arenas() if arena.name == memory.name]
    assert (arena.kind, arena.pid) == ("memory", os.getpid())
    assert Path(f"/dev/shm/unifiedserve-{memory.name}").stat().st_size <= 2 * PAGE


def test_other_processes_see_them_even_once_the_file_has_no_name(
    memory: Memory, file: Path, start: StartWorker
) -> None:
    assert start("read_memory", memory.name).read_line() == BYTES.hex()
    file.rename(file.with_name("elsewhere"))
    file.write_bytes(HEADER + bytes(SIZE))
    assert start("read_memory", memory.name).read_line() == BYTES.hex()
    file.with_name("elsewhere").unlink()
    other = Memory.attach(memory.name)
    memory.close()
    assert other.read(0, SIZE) == BYTES


def test_nobody_writes_to_them(memory: Memory, file: Path, start: StartWorker) -> None:
    for own in memory, Memory.attach(memory.name):
        with pytest.raises(ArenaError, match="shows bytes of a file, which nobody can write to"):
            own.write(0, b"x")
    with pytest.raises(ValueError, match="shows bytes of a file, which nobody can write to"):
        PagePool.over(f"test-{os.getpid()}-over", memory, 1)
    writer = start("fill_memory", memory.name, 42)
    assert writer.process.wait() == -signal.SIGSEGV
    assert file.read_bytes() == HEADER + BYTES + b"the rest"


def test_they_are_its_creators(file: Path, start: StartWorker) -> None:
    name = f"test-{os.getpid()}-creators"
    creator = start("hold_file", name, str(file), PAGE, SIZE)
    assert creator.read_line() == "mapped"
    other = Memory.attach(name)
    creator.kill()
    assert other.read(0, SIZE) == BYTES
    with pytest.raises(ArenaError, match=f"'{name}': process {creator.pid}, which had the file .* open, has ended"):
        Memory.attach(name)
    other.unlink()


def test_a_descriptor_of_another_file_is_not_taken(file: Path) -> None:
    name = f"test-{os.getpid()}-closed"
    memory = Memory.map_file(name, str(file), 0, PAGE)
    descriptors = {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}
    memory.close()
    with pytest.raises(ArenaError, match=r"/proc/\d+/fd/\d+ cannot be opened: No such file"):
        Memory.attach(name)
    others = [os.open("/proc/self/exe", os.O_RDONLY) for _ in descriptors]  # one has the number that was closed
    try:
        with pytest.raises(ArenaError, match="has closed the file of these bytes"):
            Memory.attach(name)
    finally:
        for other in others:
            os.close(other)
        memory.unlink()


@pytest.mark.parametrize(
    ("offset", "size", "reason"),
    [
        (0, PAGE * 9, "has 16409 bytes, not 36864 from 0"),
        (PAGE * 9, 1, "has 16409 bytes, not 1 from 36864"),
    ],
)
def test_a_file_that_is_too_short(file: Path, offset: int, size: int, reason: str) -> None:
    with pytest.raises(ArenaError, match=reason):
        Memory.map_file(f"test-{os.getpid()}-short", str(file), offset, size)


@pytest.mark.parametrize(("offset", "size"), [(1, PAGE), (PAGE // 2, 1), (0, 0), (-PAGE, 1), (0, -1), (1 << 50, 1)])
def test_bad_ranges(file: Path, offset: int, size: int) -> None:
    with pytest.raises(ValueError, match=r"begin at a multiple of 4096|negative"):
        Memory.map_file(f"test-{os.getpid()}-bad", str(file), offset, size)


def test_files_that_cannot_be_mapped(tmp_path: Path) -> None:
    name = f"test-{os.getpid()}-none"
    with pytest.raises(ArenaError, match=f"'{name}': the file .*missing cannot be opened: No such file"):
        Memory.map_file(name, str(tmp_path / "missing"), 0, 1)
    with pytest.raises(ArenaError, match=r"cannot be mapped: No such device|has 0 bytes"):
        Memory.map_file(name, "/dev/null", 0, 1)
    with pytest.raises(ArenaError, match=r"cannot be mapped: No such device|bytes, not"):
        Memory.map_file(name, str(tmp_path), 0, 1)


def test_a_process_whose_descriptors_nobody_sees_maps_none(file: Path) -> None:
    program = (
        "import ctypes, sys; from ipc_buffers import Memory; ctypes.CDLL(None).prctl(4, 0)\n"  # PR_SET_DUMPABLE
        "Memory.map_file('test-undumpable', sys.argv[1], 0, 4096)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=False)
    assert "others cannot map the file" in done.stderr
    assert not [arena for arena in list_arenas() if arena.name == "test-undumpable"]


def test_its_descriptor_and_mapping_go_with_it(file: Path) -> None:
    def used() -> tuple[int, int]:
        maps = Path("/proc/self/maps").read_text().count(str(file))
        return len(list(Path("/proc/self/fd").iterdir())), maps

    before = used()
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for _ in range(min(most, 50)):
        memory = Memory.map_file(f"test-{os.getpid()}-many", str(file), 0, PAGE)
        other = Memory.attach(memory.name)
        memory.unlink()
        memory.close()
        other.close()
    assert used() == before
