"""Weights kept on disk: the same bytes again without a copy, and never those of something else."""

import logging
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from ipc_buffers import ArenaError, Memory
from unifiedserve.device import CPU
from unifiedserve.memory import kept_weights
from unifiedserve.memory.kept_weights import KeptWeights, Origin, copy_all
from unifiedserve.memory.memory_plan import MemoryPlan, sum_in_host
from unifiedserve.memory.tensors import SafetensorsFiles
from unifiedserve.memory.weights import load_weights, plan_memory


class Kept(NamedTuple):
    """A store with the weights of a checkpoint, and the folder of its files."""

    store: KeptWeights
    origin: Origin
    memory: Memory
    folder: Path

    @property
    def file(self) -> Path:
        (file,) = self.folder.iterdir()
        return file


@pytest.fixture
def kept(checkpoint: Path, arena_name: str, tmp_path: Path) -> Kept:
    own = tmp_path / "model.safetensors"
    shutil.copy(checkpoint / "model.safetensors", own)
    memory, origin = load_weights(checkpoint, arena_name, torch.bfloat16), Origin([own], "bfloat16")
    store = KeptWeights(tmp_path / "weights")
    store.keep(memory, sum_in_host(memory), origin)
    return Kept(store, origin, memory, tmp_path / "weights")


@pytest.fixture
def plan(checkpoint: Path) -> MemoryPlan:
    """What the weights need, under another name than the one of `kept`."""
    return plan_memory(SafetensorsFiles(checkpoint), f"test-models-{uuid.uuid4().hex[:12]}", torch.bfloat16, "host")


def find(kept: Kept, plan: MemoryPlan, origin: Origin | None = None) -> Memory | None:
    """What an engine does: the plan comes from the file, and must be that of the checkpoint."""
    from_file = kept.store.plan(plan.name, plan.place, origin or kept.origin)
    assert from_file in (None, plan)
    return kept.store.map(from_file, origin or kept.origin) if from_file else None


@contextmanager
def found(kept: Kept, plan: MemoryPlan, origin: Origin | None = None) -> Iterator[Memory | None]:
    memory = find(kept, plan, origin)
    try:
        yield memory
    finally:
        if memory:
            memory.close()
            memory.unlink()


def test_the_same_bytes_come_back_as_they_are_in_the_file(kept: Kept, plan: MemoryPlan) -> None:
    with found(kept, plan) as memory:
        assert memory is not None
        assert (memory.name, memory.manifest, memory.writable) == (plan.name, kept.memory.manifest, False)
        assert torch.equal(CPU.view(memory), CPU.view(kept.memory))
        assert CPU.view(memory).data_ptr() % 4096 == 0
        assert str(kept.file) in Path("/proc/self/maps").read_text()
        assert Path(f"/dev/shm/unifiedserve-{plan.name}").stat().st_size < len(plan.manifest) + 3 * 4096


def test_a_copy_of_them_can_be_written(kept: Kept, plan: MemoryPlan) -> None:
    source, target = find(kept, plan._replace(name=f"{plan.name}-kept")), plan.create()
    assert source is not None
    copy_all(source, target)
    try:
        assert target.writable
        assert torch.equal(CPU.view(target), CPU.view(kept.memory))
        with pytest.raises(ArenaError, match="does not exist"):
            Memory.attach(f"{plan.name}-kept")
    finally:
        target.unlink()


def test_a_file_that_cannot_be_mapped_stays(
    kept: Kept, plan: MemoryPlan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*arguments: object) -> Memory:
        raise ArenaError("others cannot map the file")

    monkeypatch.setattr(Memory, "map_file", refuse)
    with caplog.at_level(logging.WARNING):
        assert find(kept, plan) is None
    assert "cannot be mapped, and are made again: others cannot map the file" in caplog.text
    assert kept.file.exists()


def test_they_stay_when_the_folder_is_cleared(kept: Kept, plan: MemoryPlan) -> None:
    with found(kept, plan) as memory:
        assert memory is not None
        shutil.rmtree(kept.folder)
        later = Memory.attach(plan.name)  # as a worker that is replaced
        assert torch.equal(CPU.view(later), CPU.view(kept.memory))


def test_a_file_is_one_that_others_can_read(kept: Kept) -> None:
    with safe_open(kept.file, framework="pt") as file:
        assert torch.equal(file.get_tensor("memory"), CPU.view(kept.memory))


def test_other_dtypes_and_ranks_have_files_of_their_own(kept: Kept, plan: MemoryPlan) -> None:
    other = kept.origin._replace(how="float32")
    assert find(kept, plan, other) is None
    kept.store.keep(kept.memory, sum_in_host(kept.memory), other)
    assert len(list(kept.folder.iterdir())) == 2


def test_a_changed_checkpoint_is_read_again(kept: Kept, plan: MemoryPlan, caplog: pytest.LogCaptureFixture) -> None:
    with kept.origin.files[0].open("ab") as file:
        file.write(b"changed")
    with caplog.at_level(logging.WARNING):
        assert find(kept, plan) is None
    assert "made again: the checkpoint, the program or the processor is another" in caplog.text
    kept.store.keep(kept.memory, sum_in_host(kept.memory), kept.origin)
    with found(kept, plan) as memory:
        assert memory is not None
    assert len(list(kept.folder.iterdir())) == 1, "the old one has been replaced"


def test_weights_of_other_kernels_are_made_again(kept: Kept, plan: MemoryPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unifiedserve._core.instruction_sets", lambda: ["another"])
    assert find(kept, plan) is None


@pytest.mark.parametrize("place", ["quantization/awq.py", "models/gguf/tensors.py", "models/gguf/towers/gemma3.py"])
def test_all_code_that_makes_bytes_counts(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = tmp_path / place
    code.parent.mkdir(parents=True)
    code.write_text("GAIN = 1")
    monkeypatch.setattr(kept_weights, "_PACKAGE", tmp_path)
    before = kept_weights._digest_of_code.__wrapped__()
    code.write_text("GAIN = 2")
    assert kept_weights._digest_of_code.__wrapped__() != before


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.floats(0, 1, exclude_max=True), cut=st.booleans())
def test_damaged_files_are_never_used(kept: Kept, plan: MemoryPlan, position: float, cut: bool) -> None:
    kept.store.keep(kept.memory, sum_in_host(kept.memory), kept.origin)
    data = bytearray(kept.file.read_bytes())
    place = int(position * len(data))
    if cut:
        del data[place:]
    else:
        data[place] ^= 0x41
    kept.file.write_bytes(data)
    with found(kept, plan) as memory:
        if memory is not None:  # what was changed was of no meaning
            assert torch.equal(CPU.view(memory), CPU.view(kept.memory))
        else:
            assert not list(kept.folder.iterdir())


def test_without_room_it_goes_on_without(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10, 9, 1))
    with caplog.at_level(logging.WARNING):
        kept.store.keep(kept.memory, 0, kept.origin._replace(how="other"))
    assert "are not kept" in caplog.text
    assert len(list(kept.folder.iterdir())) == 1


def test_a_folder_that_cannot_be_made_is_no_obstacle(
    kept: Kept, plan: MemoryPlan, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    store = KeptWeights(tmp_path / "file" / "weights")
    with caplog.at_level(logging.WARNING):
        store.keep(kept.memory, 0, kept.origin)
    assert "are not kept" in caplog.text
    assert store.plan(plan.name, plan.place, kept.origin) is None


def test_nothing_is_left_of_a_file_whose_server_ends(kept: Kept) -> None:
    kept.store.close()
    kept.store.keep(kept.memory, 0, kept.origin._replace(how="other"))
    assert [file.suffix for file in kept.folder.iterdir()] == [".safetensors"]


def test_what_a_killed_server_has_left_is_overwritten(kept: Kept, plan: MemoryPlan) -> None:
    part = kept.file.with_suffix(".part")
    kept.file.unlink()
    part.write_bytes(b"half")
    kept.store.keep(kept.memory, sum_in_host(kept.memory), kept.origin)
    with found(kept, plan) as memory:
        assert memory is not None
    assert not part.exists()
