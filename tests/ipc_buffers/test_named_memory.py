"""Memory in the host: its views, and what a GPU's memory would be asked for on a machine without one."""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ipc_processes import MakePool, StartWorker

from ipc_buffers import Arena, ArenaError, Memory, PagePool, list_arenas

torch = pytest.importorskip("torch")

SIZE = 10_000


@pytest.fixture
def memory(removal: ExitStack) -> Memory:
    memory = Memory.create(f"test-{os.getpid()}-memory", SIZE, manifest=b"ten thousand bytes")
    removal.callback(memory.unlink)
    return memory


def mappings(name: str) -> int:
    """How often this process has an arena mapped, its name removed or not."""
    return sum(f"/unifiedserve-{name}" in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_two_handles_see_the_same_zeroed_bytes(memory: Memory) -> None:
    other = Memory.attach(memory.name)
    assert (other.nbytes, other.place, other.manifest) == (SIZE, "host", b"ten thousand bytes")
    assert other.read(0, SIZE) == bytes(SIZE)
    memory.write(9_997, b"end")
    assert other.read(9_990, 10) == bytes(7) + b"end"


def test_another_process_writes(memory: Memory, start: StartWorker) -> None:
    start("fill_memory", memory.name, 42).finish()
    assert memory.read(0, SIZE) == bytes([42]) * SIZE


def test_the_registry_knows_it(memory: Memory) -> None:
    (found,) = [arena for arena in list_arenas() if arena.name == memory.name]
    assert (found.kind, found.pid, found.alive) == ("memory", os.getpid(), True)
    with pytest.raises(ArenaError, match="holds a memory, not a plain arena"):
        Arena.attach(memory.name)
    with pytest.raises(ArenaError, match="holds a memory, not a page pool"):
        PagePool.attach(memory.name)


def test_torch_and_numpy_see_the_bytes_themselves(memory: Memory) -> None:
    tensor, array = torch.from_dlpack(memory), np.from_dlpack(memory)
    assert (tensor.dtype, tensor.shape, tensor.device.type) == (torch.uint8, (SIZE,), "cpu")
    assert (array.dtype, array.shape) == (np.uint8, (SIZE,))
    assert tensor.data_ptr() == array.ctypes.data
    assert tensor.data_ptr() % 4096 == 0
    tensor[17] = 5
    array[18] = 6
    assert memory.read(16, 4) == bytes([0, 5, 6, 0])


@pytest.mark.parametrize(
    ("max_version", "capsule"),
    [(None, b"dltensor"), ((0, 8), b"dltensor"), ((1, 0), b"dltensor_versioned"), ((1, 3), b"dltensor_versioned")],
)
def test_the_capsule_is_the_consumer_s(memory: Memory, max_version: tuple[int, int] | None, capsule: bytes) -> None:
    exported = memory.__dlpack__(max_version=max_version)
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    assert name(exported) == capsule
    tensor = torch.from_dlpack(exported)
    tensor[0] = 9
    assert memory.read(0, 1) == b"\x09"


def test_what_an_export_cannot_be(memory: Memory) -> None:
    assert memory.__dlpack_device__() == (1, 0)
    memory.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="not exported to another device"):
        memory.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="without a copy"):
        memory.__dlpack__(copy=True)
    with pytest.raises(TypeError):
        memory.__dlpack__(None)  # type: ignore[misc]


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_views_outlive_close_and_unlink(memory: Memory, version: tuple[int, int] | None) -> None:
    tensor = torch.from_dlpack(memory.__dlpack__(max_version=version))
    unused = memory.__dlpack__(max_version=version)
    memory.close()
    memory.close()
    memory.unlink()
    tensor[:] = 3
    assert int(tensor.sum()) == 3 * SIZE
    with pytest.raises(ArenaError, match="closed"):
        memory.__dlpack__()
    part = tensor[5:7]
    del tensor
    gc.collect()
    assert part.tolist() == [3, 3]
    assert mappings(memory.name) == 1
    del part
    assert mappings(memory.name) == 1, "a capsule that nobody took keeps it mapped, too"
    del unused
    assert mappings(memory.name) == 0


def test_pages_are_a_memory(make_pool: MakePool) -> None:
    pool = make_pool(7, 1000)
    assert (pool.memory.nbytes, pool.memory.place, pool.memory.name) == (7_000, "host", pool.name)
    tensor = torch.from_dlpack(pool.memory)
    PagePool.attach(pool.name).data()[6_999] = 9
    assert tensor[6_999] == 9
    name = pool.name
    pool.close()
    assert mappings(name) == 1
    del tensor
    assert mappings(name) == 0


@pytest.mark.parametrize(("offset", "size"), [(0, SIZE + 1), (SIZE, 1), (SIZE + 1, 0), (1 << 62, 1)])
def test_copies_stay_within_it(memory: Memory, offset: int, size: int) -> None:
    with pytest.raises(IndexError, match="bytes"):
        memory.read(offset, size)
    with pytest.raises(IndexError, match="not within"):
        memory.write(offset, bytes(size))


def test_bad_arguments(memory: Memory) -> None:
    name = f"test-{os.getpid()}-bad"
    for place in ("", "cuda", "cuda:", "cuda:-1", "cuda:x", "cuda:0 ", "cpu", "cuda:99999999999"):
        with pytest.raises(ValueError, match="a place is 'host' or 'cuda:N'"):
            Memory.create(name, 1, place)
        with pytest.raises(ValueError, match="a place is 'host' or 'cuda:N'"):
            PagePool.create(name, 1, 1, place)
    for size in (-1, 0, 1 << 47):
        with pytest.raises(ValueError, match="size"):
            Memory.create(name, size)
    for offset in (-1, -SIZE):
        with pytest.raises(ValueError, match="negative"):
            memory.read(offset, 1)
        with pytest.raises(ValueError, match="negative"):
            memory.write(offset, b"")
    with pytest.raises(ValueError, match="not 'host'"):
        memory.pin("host")
    with pytest.raises(ArenaError, match="in use"):
        Memory.create(memory.name, 1)
    with pytest.raises(TypeError):
        memory.write(0, "text")  # type: ignore[arg-type]


def test_a_damaged_layout_is_found(memory: Memory) -> None:
    size_offset, data_offset, manifest_offset = 0, 8, 24 + 80 + 32
    path = Path("/dev/shm") / f"unifiedserve-{memory.name}"
    for field in (size_offset, data_offset, manifest_offset):
        with path.open("r+b") as file:
            file.seek(4096 + field)
            whole = file.read(8)
            file.seek(4096 + field)
            file.write((1 << 40).to_bytes(8, "little"))
        with pytest.raises(ArenaError, match="damaged"):
            Memory.attach(memory.name)
        with path.open("r+b") as file:
            file.seek(4096 + field)
            file.write(whole)
    Memory.attach(memory.name)


def test_a_gpu_without_a_driver_is_told(memory: Memory) -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("there is an NVIDIA driver here")
    for attempt in (
        lambda: Memory.create(f"test-{os.getpid()}-gpu", 1, "cuda:0"),
        lambda: PagePool.create(f"test-{os.getpid()}-gpu", 1, 1, "cuda:0"),
        lambda: memory.pin("cuda:0"),
    ):
        with pytest.raises(ArenaError, match=r"no NVIDIA driver here: libcuda\.so\.1"):
            attempt()


@given(writes=st.lists(st.tuples(st.integers(0, 999), st.binary(max_size=64), st.integers(0, 3))), manifest=st.binary())
def test_any_writes_in_any_way_are_seen_by_all(writes: list[tuple[int, bytes, int]], manifest: bytes) -> None:
    memory = Memory.create(f"test-{os.getpid()}-writes", 1_100, manifest=manifest)
    try:
        other = Memory.attach(memory.name)
        assert other.manifest == manifest
        arrays = [np.from_dlpack(memory), torch.from_dlpack(other).numpy()]
        model = bytearray(1_100)
        for offset, content, way in writes:
            if way < 2:
                (memory, other)[way].write(offset, content)
            else:
                arrays[way - 2][offset : offset + len(content)] = np.frombuffer(content, np.uint8)
            model[offset : offset + len(content)] = content
            assert memory.read(0, 1_100) == other.read(0, 1_100) == model
    finally:
        memory.unlink()
