"""What each memory of an engine has: the pools and weights that the stages hosted there need."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ipc_buffers import Memory, list_arenas
from unifiedserve.config import MIB, EngineConfig, machine
from unifiedserve.device import CPU, Device
from unifiedserve.device.cuda import CudaDevice
from unifiedserve.engine.admission.admission import Admission
from unifiedserve.engine.buffer_sizes import plan_layout
from unifiedserve.engine.engine_memory import EngineMemory
from unifiedserve.errors import ConfigError, RequestError
from unifiedserve.memory.panels import matrix_name
from unifiedserve.memory.shared import EngineLayout, MemoryLayout, PoolSize
from unifiedserve.memory.status import Status
from unifiedserve.memory.weights import attach_weights, load_weights
from unifiedserve.messages.api import GenerateRequest
from unifiedserve.models.processor import Processor
from unifiedserve.placement import FIRST_MEMORY, Stage

MIBS = {"kv": 4, "patch": 3, "visual": 2 + 1}
SMALL = {"kv_cache_mib": 4, "patch_buffer_mib": 3, "visual_buffer_mib": 2, "visual_cache_mib": 1, "device": "cpu"}


def layout(processor: Processor, placement: str, device: Device = CPU, **given: str) -> EngineLayout:
    config = EngineConfig.of(**{"placement": placement, **SMALL, **given})
    return plan_layout(config, config.machine.workers, processor, "float32", "none", "weights", device)


@pytest.mark.parametrize(
    ("placement", "pools"),
    [
        ("shared", {"mem0": "kv patch visual"}),
        ("e@mem0+p@mem1+d@mem2", {"mem0": "patch visual", "mem1": "kv visual", "mem2": "kv"}),
        ("v@mem3+e@mem0+pd@mem1", {"mem3": "", "mem0": "patch visual", "mem1": "kv visual"}),
        ("ep@mem1+d@mem0", {"mem1": "kv patch visual", "mem0": "kv"}),
        ("vepd@mem0+vepd@mem1", {"mem0": "kv patch visual", "mem1": "kv patch visual"}),
    ],
)
def test_a_memory_has_the_pools_that_its_stages_need(ours: Processor, placement: str, pools: dict[str, str]) -> None:
    """Each of the configured size, and weights where there is any."""
    planned = layout(ours, placement)
    assert {memory: " ".join(own.pools) for memory, own in planned.memories.items()} == pools
    for memory, own in planned.memories.items():
        for name, size in own.pools.items():
            assert MIBS[name] * MIB - size.page_bytes < size.bytes <= MIBS[name] * MIB
        assert own.weights == (f"weights-{memory}" if pools[memory] else "")
    assert set(planned.pools) == {(memory, name) for memory, names in pools.items() for name in names.split()}


def test_stages_can_be_hosted_where_all_that_they_need_is(ours: Processor) -> None:
    planned = layout(ours, "e@mem0+p@mem1+d@mem2")
    assert {memory: own.stages for memory, own in planned.memories.items()} == {
        "mem0": (Stage.VISION, Stage.ENCODE),
        "mem1": (Stage.VISION, Stage.PREFILL, Stage.DECODE),
        "mem2": (Stage.VISION, Stage.DECODE),
    }


def test_answers_that_keep_visual_rows_need_them_where_they_go_on(
    ours: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(ours), "keeps_visual_rows", True)
    assert set(layout(ours, "ep@mem0+d@mem1").memories["mem1"].pools) == {"kv", "visual"}


@pytest.mark.parametrize(
    ("placement", "refused"),
    [("ed@mem0+p@mem1", True), ("ed@mem0+p@mem1+d@mem1", False), ("ep@mem0+d@mem1", False), ("e+p@mem1+d@mem2", False)],
)
def test_kept_visual_rows_never_come_back_to_where_they_were_encoded(
    ours: Processor, monkeypatch: pytest.MonkeyPatch, placement: str, refused: bool
) -> None:
    """Requests could wait there for those that are to leave: nobody would go on."""
    assert layout(ours, placement)
    monkeypatch.setattr(type(ours), "keeps_visual_rows", True)
    if not refused:
        assert layout(ours, placement)
        return
    with pytest.raises(ConfigError, match="answers of this model hold visual tokens, which would come back"):
        layout(ours, placement)


@pytest.mark.parametrize(
    ("placement", "places"),
    [
        ("shared", {"mem0": "cuda:0"}),
        ("ep+d@mem1", {"mem0": "cuda:0", "mem1": "cuda:1"}),
        ("ep@cuda:1+d@cuda:0", {"mem1": "cuda:1", "mem0": "cuda:0"}),
        ("ep@mem3,cuda:1+d@mem0,cuda:1", {"mem3": "cuda:1", "mem0": "cuda:1"}),
    ],
)
def test_a_memory_is_on_its_gpu(ours: Processor, placement: str, places: dict[str, str]) -> None:
    gpu = CudaDevice(EngineConfig())
    planned = layout(ours, placement, gpu)
    assert {memory: own.place for memory, own in planned.memories.items()} == places
    assert {own.place for own in layout(ours, placement).memories.values()} == {"host"}
    for place in planned.places:
        assert set(planned.at(place).memories) == {memory for memory in places if places[memory] == place}


def test_what_is_for_the_memories_of_the_host_is_refused_on_gpus(ours: Processor) -> None:
    gpu = CudaDevice(EngineConfig())
    with pytest.raises(ConfigError, match="--memories numa: on GPUs no page is in a node's memory"):
        layout(ours, "shared", gpu, memories="numa")
    with pytest.raises(ConfigError, match="--carrier tcp: is for memories of the host"):
        layout(ours, "ep+d@mem1", gpu, carrier="tcp")


def test_a_request_that_is_too_large_is_told_for_which_memory(ours: Processor) -> None:
    large, small = (PoolSize(pages, 1) for pages in (1000, 4))
    memories = {"mem0": MemoryLayout(large, large, large), "mem1": MemoryLayout(small, large, large)}
    admission = Admission(EngineConfig(), ours, EngineLayout("none", memories, ()))
    try:
        with pytest.raises(
            RequestError, match=r"pages of the KV cache .* which has 4 in mem1: ask for less"
        ) as refused:
            admission.admit(GenerateRequest(id="x", prompt_token_ids=[5] * 100))
    finally:
        admission.close()
    assert refused.value.code == "buffer_too_small"


@pytest.fixture
def memory(checkpoint: Path, ours: Processor) -> Iterator[EngineMemory]:
    config = EngineConfig.of(placement="e@mem0+p@mem1+d@mem2", **SMALL)
    memory = EngineMemory(config, checkpoint, ours, CPU, lambda *_: pytest.fail("nothing is tried out on a CPU"))
    yield memory
    memory.free()


def test_each_memory_has_the_weights_of_its_stages(memory: EngineMemory, checkpoint: Path, arena_name: str) -> None:
    """The encoder in the first one, the language model in the others: together the whole checkpoint."""
    encoder, *copies = [attach_weights(own.weights) for own in memory.shared.layout.memories.values()]
    load_weights(checkpoint, arena_name, torch.float32)
    whole = attach_weights(arena_name)
    assert {matrix_name(name) for name in encoder} == {name for name in whole if name.startswith("visual.")}
    first, second = copies
    assert {matrix_name(name) for name in first} == {name for name in whole if not name.startswith("visual.")}
    assert first.keys() == second.keys()
    assert all(torch.equal(second[name], tensor) for name, tensor in first.items())
    assert not {each.data_ptr() for each in first.values()} & {each.data_ptr() for each in second.values()}
    assert all(torch.equal(tensor, whole[name]) for name, tensor in encoder.items() if name in whole)


def test_weights_take_no_more_than_their_stages_need(memory: EngineMemory) -> None:
    """Segments are as large as what is counted for them beforehand."""
    names = [own.weights for own in memory.shared.layout.memories.values()]
    encoder, first, second = [Memory.attach(name).nbytes for name in names]
    assert encoder + first + second == memory.uses["weights"]
    assert 0 < encoder < first == second


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The first two cores, each in a node of its own."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        pytest.skip("there is one core")
    monkeypatch.setattr(machine, "cores_by_node", lambda available: {node: (core,) for node, core in enumerate(cores)})
    machine._placement.cache_clear()
    yield cores
    machine._placement.cache_clear()


def test_with_a_memory_for_each_node_bytes_are_taken_near_it(
    two_nodes: list[int], monkeypatch: pytest.MonkeyPatch, checkpoint: Path, ours: Processor
) -> None:
    weights: list[int | None] = []
    pools: list[int | None] = []

    @contextmanager
    def near(taken: list[int | None], node: int | None) -> Iterator[None]:
        taken.append(node)
        yield

    monkeypatch.setattr("unifiedserve.engine.engine_weights.near_node", partial(near, weights))
    monkeypatch.setattr("unifiedserve.memory.shared.near_node", partial(near, pools))
    first, second = two_nodes
    config = EngineConfig.of(placement=f"vep@{first}+d@{second}", memories="numa", **SMALL)
    memory = EngineMemory(config, checkpoint, ours, CPU, lambda *_: pytest.fail("nothing is tried out on a CPU"))
    try:
        assert set(memory.shared.of("mem0")) == {"kv", "patch", "visual"}
        assert set(memory.shared.of("mem1")) == {"kv"}
        assert (weights, pools) == ([0, 1], [0, 0, 0, 1])
    finally:
        memory.free()


def test_all_pools_are_checked_reclaimed_renewed_and_removed(memory: EngineMemory) -> None:
    shared = memory.shared
    assert set(shared.pools) == {
        ("mem0", "patch"), ("mem0", "visual"), ("mem1", "visual"), ("mem1", "kv"), ("mem2", "kv"),
    }  # fmt: skip
    assert set(shared.of("mem1")) == {"visual", "kv"}
    assert set(shared.named("kv")) == {"mem1", "mem2"}
    for pool in shared.pools.values():
        pool.allocate(2, 7, 3)
    with pytest.raises(Exception, match="mem0 patch pool of"):
        shared.check_integrity()
    assert shared.reclaim(7) == 10
    shared.check_integrity()
    for keeps in (True, False):
        shared.pools["mem2", "kv"].allocate(1, 9, 1)
        memory.renew(keeps=keeps)
        shared = memory.shared
        shared.check_integrity()
    prefix = shared.layout.engine_id.rpartition("-")[0]
    assert f"{prefix}-weights-mem2" in {arena.name for arena in list_arenas()}
    memory.free()
    assert not [arena.name for arena in list_arenas() if arena.name.startswith(prefix)]


@given(st.floats(1e-3, 1e9), st.integers(-5, 5))
def test_nobody_waits_for_one_of_the_same_place(turn: float, priority: int) -> None:
    """As two attempts at one request have it, in two instances: what is told is rounded, and never comes before."""
    arena = Status.create(f"test-models-{uuid.uuid4().hex[:12]}", ["one", "other"])
    try:
        status = Status(arena, ["one", "other"])
        status.set_first("one", Stage.DECODE, FIRST_MEMORY, (priority, turn))
        told = status.first("one", Stage.DECODE, FIRST_MEMORY)
        assert told is not None
        assert (priority, turn) <= told < (priority, turn + 2e-6 + turn * 1e-12)
        status.set_first("one", Stage.DECODE, FIRST_MEMORY, None)
        assert status.first("one", Stage.DECODE, FIRST_MEMORY) is None
    finally:
        arena.unlink()
