"""Memory of GPUs between processes: over a stand-in for libcuda whose GPUs are files, and over a real one."""

from __future__ import annotations

import os
from pathlib import Path

import fake_cuda
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from memory_process import MemoryProcess, RefusedError, StartProcess, remove_names

from ipc_buffers import ArenaError, Memory, PagePool, list_arenas, remove_stale_arenas

MIB = 1 << 20
CONTEXT_AND_MEMORY = 2  # what a process holds of one memory, as the stand-in counts
NAME = f"test-{os.getpid()}-device"


def entry(name: str) -> tuple[str, bool] | None:
    return next(((arena.kind, arena.alive) for arena in list_arenas() if arena.name == name), None)


def test_what_one_process_writes_another_reads(start_process: StartProcess) -> None:
    engine, worker = start_process(), start_process()
    engine.create("m", NAME, 3 * MIB, "cuda:0")
    assert engine.read("m", 0, 8) == bytes(8).hex(), "it is zeroed"
    worker.attach("m", NAME)
    told = {"nbytes": 3 * MIB, "place": "cuda:0", "manifest": f"made by {engine.pid}", "device": [2, 0]}
    assert worker.about("m") == engine.about("m") == told
    worker.write("m", 3 * MIB - 3, b"end".hex())
    assert engine.read("m", 3 * MIB - 4, 4) == b"\0end".hex()
    engine.write("m", 0, b"begin".hex())
    assert worker.read("m", 0, 5) == b"begin".hex()
    assert entry(NAME) == ("memory", True)
    for process in (engine, worker):
        with pytest.raises(RefusedError, match="IndexError"):
            process.write("m", 3 * MIB - 2, b"end".hex())


def test_a_process_maps_it_once(start_process: StartProcess) -> None:
    """The stand-in refuses what the driver does: a handle that is open, or one's own."""
    engine, worker = start_process(), start_process()
    engine.create("m", NAME, 100, "cuda:0")
    for process in (engine, worker):
        process.attach("first", NAME)
        process.attach("second", NAME)
        assert process.view("first", "a") == process.view("second", "b")
        process.close("first")
        process.drop("a")
        process.write("second", 0, b"x".hex())
        assert process.live() == CONTEXT_AND_MEMORY
    assert engine.view("m", "c") == engine.view("second", "b")


def test_the_last_use_gives_it_up(start_process: StartProcess, tmp_path: Path) -> None:
    engine, worker = start_process(), start_process()
    engine.create("m", NAME, 100, "cuda:0")
    engine.unlink("m")
    assert entry(NAME) is None
    assert list(tmp_path.glob("memory-*")), "unlinking does not free"
    engine.view("m", "view")
    engine.close("m")
    assert engine.live() == CONTEXT_AND_MEMORY
    engine.drop("view")
    assert engine.live() == 0
    assert not list(tmp_path.glob("memory-*"))
    with pytest.raises(RefusedError, match="does not exist"):
        worker.attach("m", NAME)


def test_memory_that_was_freed_is_not_found(start_process: StartProcess) -> None:
    engine, worker = start_process(), start_process()
    engine.create("m", NAME, 100, "cuda:0")
    engine.close("m")
    with pytest.raises(RefusedError, match=f"arena '{NAME}': cuIpcOpenMemHandle_v2: .*its creator must still hold it"):
        worker.attach("m", NAME)
    assert worker.live() == 0


def test_memory_of_the_dead_is_told_and_removed(start_process: StartProcess) -> None:
    engine, worker = start_process(), start_process()
    engine.create("m", NAME, 100, "cuda:0")
    worker.attach("m", NAME)
    engine.kill()
    assert entry(NAME) == ("memory", False)
    for process in (worker, start_process()):
        with pytest.raises(
            RefusedError, match=rf"process {engine.pid}, which created it, has ended.*remove_stale_arenas"
        ):
            process.attach("late", NAME)
    worker.close("m")
    assert worker.live() == 0
    assert NAME in remove_stale_arenas()
    with pytest.raises(RefusedError, match="does not exist"):
        worker.attach("m", NAME)


def test_too_little_memory_is_told_with_numbers(start_process: StartProcess) -> None:
    engine = start_process(FAKE_CUDA_MEMORY=str(10 * MIB))
    engine.create("m", NAME, 5 * MIB, "cuda:0")  # whole blocks of 2 MiB
    with pytest.raises(RefusedError) as error:
        engine.create("more", NAME + "-more", 5 * MIB, "cuda:0")
    assert str(error.value).startswith(f"ArenaError: arena '{NAME}-more': needs {6 * MIB} bytes, but cuda:0 has ")
    assert f"has {4 * MIB} of its {10 * MIB} bytes free" in str(error.value)
    assert entry(NAME + "-more") is None
    assert engine.live() == CONTEXT_AND_MEMORY


def test_a_name_in_use_costs_no_memory(start_process: StartProcess) -> None:
    engine = start_process()
    engine.create("m", NAME, 100, "cuda:0")
    with pytest.raises(RefusedError, match="in use"):
        engine.create("again", NAME, 100, "cuda:0")
    assert engine.live() == CONTEXT_AND_MEMORY


def test_gpus_are_known_by_their_uuids(start_process: StartProcess) -> None:
    engine, same, other = start_process(FAKE_CUDA_GPUS="AB"), start_process(FAKE_CUDA_GPUS="BA"), start_process()
    engine.create("m", NAME, 100, "cuda:1")
    engine.write("m", 0, b"x".hex())
    same.attach("m", NAME)
    assert same.about("m")["place"] == "cuda:0", "as that process numbers it"
    assert same.read("m", 0, 1) == b"x".hex()
    uuid = "GPU-42424242-4242-4242-4242-424242424242"
    with pytest.raises(RefusedError, match=f"is on {uuid}, which is hidden.*sees 1 GPU; CUDA_VISIBLE_DEVICES"):
        other.attach("m", NAME)
    with pytest.raises(RefusedError, match="there is no cuda:2: this process sees 2 GPUs"):
        engine.create("more", NAME + "-more", 100, "cuda:2")


def test_a_driver_that_cannot_be_used(start_process: StartProcess, tmp_path_factory: pytest.TempPathFactory) -> None:
    none = start_process(FAKE_CUDA_FAULT="cuInit")
    with pytest.raises(RefusedError, match=f"ArenaError: arena '{NAME}': cuInit: CUDA_ERROR_NO_DEVICE"):
        none.create("m", NAME, 100, "cuda:0")
    folder = fake_cuda.build(tmp_path_factory.mktemp("old-cuda"), "-DFAKE_CUDA_IS_OLD")
    old = start_process(LD_LIBRARY_PATH=str(folder))
    with pytest.raises(RefusedError, match=r"driver is too old: it has no cuDeviceGetUuid_v2"):
        old.create("m", NAME, 100, "cuda:0")
    old.create("m", NAME, 100, "host")
    assert old.about("m")["place"] == "host"


def test_every_thread_may_use_it(start_process: StartProcess) -> None:
    engine, worker = start_process(), start_process()
    engine.in_thread("create", "m", NAME, 100, "cuda:0")
    worker.in_thread("attach", "m", NAME)
    worker.in_thread("write", "m", 0, b"x".hex())
    assert engine.in_thread("read", "m", 0, 1) == b"x".hex()
    for process in (worker, engine):
        process.in_thread("close", "m")
        assert process.live() == 0


def test_threads_open_and_close_it_at_once(start_process: StartProcess) -> None:
    engine, worker = start_process(), start_process()
    engine.create("m", NAME, 100, "cuda:0")
    worker.attach_at_once(NAME, 4, 200)
    assert worker.live() == 0
    engine.attach_at_once(NAME, 4, 200)
    assert engine.live() == CONTEXT_AND_MEMORY


def test_a_fork_is_told_that_it_cannot_use_it(start_process: StartProcess) -> None:
    engine = start_process()
    engine.in_fork("create", "m", NAME, 100, "cuda:0")  # before the parent has used CUDA
    remove_names(NAME)
    engine.create("m", NAME, 100, "cuda:0")
    engine.write("m", 0, b"x".hex())
    told = rf"was forked from process {engine.pid}, which had used CUDA"
    for operation in (("create", "n", NAME + "-n", 1, "cuda:0"), ("attach", "n", NAME), ("read", "m", 0, 1)):
        with pytest.raises(RefusedError, match=told):
            engine.in_fork(*operation)
    engine.in_fork("close", "m")
    assert engine.live() == CONTEXT_AND_MEMORY
    assert engine.read("m", 0, 1) == b"x".hex(), "a fork that gives it up takes nothing from its parent"


def test_host_memory_is_pinned_while_it_is_mapped(start_process: StartProcess) -> None:
    engine = start_process()
    engine.create("m", NAME, 100, "host")
    engine.attach("other", NAME)
    engine.pin("m", "cuda:0")
    engine.pin("m", "cuda:0")
    assert engine.live() == CONTEXT_AND_MEMORY
    engine.pin("other", "cuda:0")
    assert engine.live() == 2 * CONTEXT_AND_MEMORY, "each mapping is pinned for itself"
    engine.close("other")
    engine.view("m", "view")
    engine.close("m")
    assert engine.live() == CONTEXT_AND_MEMORY
    engine.drop("view")
    assert engine.live() == 0
    engine.create("d", NAME + "-d", 100, "cuda:0")
    with pytest.raises(RefusedError, match=r"ArenaError.*is on cuda:0, not in host memory"):
        engine.pin("d", "cuda:0")


def test_pages_on_a_gpu(start_process: StartProcess) -> None:
    engine, worker = start_process(), start_process()
    engine.create_pool(NAME, 10, 4096, "cuda:0")
    worker.attach_pool(NAME)
    pages = worker.allocate(NAME, 4, 7)
    worker.write(NAME, pages[3] * 4096, b"page".hex())
    assert engine.read(NAME, pages[3] * 4096, 4) == b"page".hex()
    assert engine.about(NAME)["nbytes"] == 10 * 4096
    assert entry(NAME) == ("page pool", True)
    with pytest.raises(
        RefusedError, match=r"ArenaError.*is on cuda:0, not in host memory; look at it through __dlpack__"
    ):
        engine.pool_data(NAME)
    with pytest.raises(RefusedError, match=r"ArenaError.*is on cuda:0, not in host memory"):
        engine.paged_buffer(NAME, 8)

    worker.kill()
    assert engine.free_pages(NAME) == 6
    assert engine.reclaim(NAME, 7) == 4
    assert engine.allocate(NAME, 10, 8) is not None
    assert engine.read(NAME, pages[3] * 4096, 4) == b"page".hex()

    engine.close_pool(NAME)
    assert engine.live() == 0


def test_a_pool_of_a_dead_engine_goes(start_process: StartProcess) -> None:
    engine, worker = start_process(), start_process()
    engine.create_pool(NAME, 10, 4096, "cuda:0")
    engine.kill()
    with pytest.raises(RefusedError, match="has ended"):
        worker.attach_pool(NAME)
    assert entry(NAME) == ("page pool", False)


def test_a_pool_that_does_not_fit_leaves_nothing(start_process: StartProcess) -> None:
    engine = start_process(FAKE_CUDA_MEMORY=str(4 * MIB))
    with pytest.raises(
        RefusedError, match=f"ArenaError: arena '{NAME}': needs {10 * MIB} bytes, but cuda:0 has {4 * MIB}"
    ):
        engine.create_pool(NAME, 10, MIB, "cuda:0")
    assert entry(NAME) is None
    assert engine.live() == 0


def test_a_process_ends_with_memory_in_use(start_process: StartProcess) -> None:
    engine, worker = start_process(), start_process()
    engine.create("m", NAME, 100, "cuda:0")
    worker.attach("m", NAME)
    for process in (worker, engine):
        process.view("m", "view")
        assert process.finish() == 0
    assert entry(NAME) == ("memory", False)


class SharingMachine(RuleBasedStateMachine):
    """Memories of two GPUs' processes, against bytes and counts of uses."""

    SIZE = 64

    def __init__(self, processes: list[MemoryProcess]) -> None:
        super().__init__()
        self.processes = processes
        self.count = 0
        self.contents: dict[str, bytearray] = {}  # of memories that their creators hold
        self.creators: dict[str, int] = {}
        self.linked: set[str] = set()
        self.uses: list[dict[str, tuple[str, bool]]] = [{} for _ in processes]  # handle or view -> memory, is a view

    def teardown(self) -> None:
        while endable := self.endable():
            self.end(*endable[0])
        remove_names(NAME)

    def end(self, number: int, use: str) -> None:
        name, is_view = self.uses[number].pop(use)
        self.processes[number].drop(use) if is_view else self.processes[number].close(use)
        if not self.held(name, self.creators[name]):
            self.contents.pop(name, None)

    def held(self, name: str, *numbers: int) -> bool:
        uses = [self.uses[number] for number in numbers] if numbers else self.uses
        return any(memory == name for of in uses for memory, _ in of.values())

    def handles(self) -> list[tuple[int, str]]:
        return [(number, use) for number, uses in enumerate(self.uses) for use, (_, view) in uses.items() if not view]

    def endable(self) -> list[tuple[int, str]]:
        """The uses that may end now: an importer's, or a creator's that is not its last while others import."""
        found = []
        for number, uses in enumerate(self.uses):
            for use, (name, _) in uses.items():
                creator = self.creators[name]
                others = [other for other in range(len(self.uses)) if other != creator]
                last = sum(memory == name for memory, _ in uses.values()) == 1
                if number != creator or not last or not self.held(name, *others):
                    found.append((number, use))
        return found

    def named(self) -> str:
        self.count += 1
        return f"{NAME}-{self.count}"

    @precondition(lambda self: len(self.contents) < 4)
    @rule(number=st.integers(0, 2), gpu=st.integers(0, 1))
    def create(self, number: int, gpu: int) -> None:
        name = self.named()
        self.processes[number].create(name, name, self.SIZE, f"cuda:{gpu}")
        self.contents[name] = bytearray(self.SIZE)
        self.creators[name] = number
        self.linked.add(name)
        self.uses[number][name] = (name, False)

    @precondition(lambda self: self.linked)
    @rule(number=st.integers(0, 2), data=st.data())
    def attach(self, number: int, data: st.DataObject) -> None:
        name, handle = data.draw(st.sampled_from(sorted(self.linked))), self.named()
        if not self.held(name, self.creators[name]):
            with pytest.raises(RefusedError, match="ArenaError"):
                self.processes[number].attach(handle, name)
            return
        self.processes[number].attach(handle, name)
        self.uses[number][handle] = (name, False)

    @precondition(lambda self: self.handles())
    @rule(data=st.data())
    def view(self, data: st.DataObject) -> None:
        (number, handle), view = data.draw(st.sampled_from(self.handles())), self.named()
        self.processes[number].view(handle, view)
        self.uses[number][view] = (self.uses[number][handle][0], True)

    @precondition(lambda self: self.handles())
    @rule(data=st.data(), offset=st.integers(0, SIZE - 8), content=st.binary(max_size=8))
    def write_and_read(self, data: st.DataObject, offset: int, content: bytes) -> None:
        number, handle = data.draw(st.sampled_from(self.handles()))
        name = self.uses[number][handle][0]
        self.processes[number].write(handle, offset, content.hex())
        self.contents[name][offset : offset + len(content)] = content
        readers = [(reader, use) for reader, use in self.handles() if self.uses[reader][use][0] == name]
        reader, use = data.draw(st.sampled_from(readers))
        assert bytes.fromhex(self.processes[reader].read(use, 0, self.SIZE)) == self.contents[name]

    @precondition(lambda self: self.handles())
    @rule(data=st.data())
    def unlink(self, data: st.DataObject) -> None:
        number, handle = data.draw(st.sampled_from(self.handles()))
        self.processes[number].unlink(handle)
        self.linked.discard(self.uses[number][handle][0])

    @precondition(lambda self: self.endable())
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        self.end(*data.draw(st.sampled_from(self.endable())))

    @invariant()
    def nothing_is_held_twice_or_for_nothing(self) -> None:
        for process, uses in zip(self.processes, self.uses, strict=True):
            assert process.live() == CONTEXT_AND_MEMORY * len({name for name, _ in uses.values()})
        assert self.linked == {arena.name for arena in list_arenas() if arena.name.startswith(f"{NAME}-")}


def test_processes_share_and_give_up_in_any_order(start_process: StartProcess) -> None:
    processes = [start_process(FAKE_CUDA_GPUS=order) for order in ("AB", "BA", "AB")]
    machine_settings = settings(max_examples=40, stateful_step_count=30)
    run_state_machine_as_test(lambda: SharingMachine(processes), settings=machine_settings)


@pytest.mark.gpu
def test_a_real_gpu_s_memory_between_processes() -> None:
    torch = pytest.importorskip("torch")
    worker = MemoryProcess()
    memory = Memory.create(NAME, 3 * MIB, "cuda:0")
    try:
        assert memory.read(0, 8) == bytes(8)
        worker.attach("m", NAME)
        worker.write("m", 3 * MIB - 3, b"end".hex())
        assert memory.read(3 * MIB - 4, 4) == b"\0end"
        if torch.cuda.is_available():
            tensor = torch.from_dlpack(memory)
            assert (str(tensor.device), tensor.shape) == ("cuda:0", (3 * MIB,))
            assert bytes(tensor[-3:].tolist()) == b"end"
            tensor[0] = 7
            torch.cuda.synchronize()
            assert worker.read("m", 0, 1) == "07"
            del tensor
        worker.close("m")
    finally:
        worker.kill()
        memory.close()
        memory.unlink()


@pytest.mark.gpu
def test_a_real_gpu_s_pages() -> None:
    pool = PagePool.create(NAME, 10, 4096, "cuda:0")
    worker = MemoryProcess()
    try:
        worker.attach_pool(NAME)
        pages = worker.allocate(NAME, 4, 7)
        worker.write(NAME, pages[3] * 4096, b"page".hex())
        assert pool.memory.read(pages[3] * 4096, 4) == b"page"
        with pytest.raises(ArenaError, match="not in host memory"):
            pool.data()
        worker.kill()
        assert pool.reclaim(request=7) == 4
    finally:
        worker.kill()
        pool.close()
        pool.unlink()


@pytest.mark.gpu
def test_pinning_for_a_real_gpu() -> None:
    memory = Memory.create(NAME, MIB)
    try:
        memory.pin("cuda:0")
        view = np.from_dlpack(memory)
        view[:] = 1
        memory.close()
        assert int(view.sum()) == MIB
    finally:
        memory.unlink()


@pytest.mark.gpu
def test_more_than_a_real_gpu_has() -> None:
    with pytest.raises(ArenaError, match=r"needs \d+ bytes, but cuda:0 has \d+ of its \d+ bytes free"):
        Memory.create(NAME, 1 << 45, "cuda:0")
