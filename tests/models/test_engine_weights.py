"""An engine's weights: a second start maps what the first has kept, and what is damaged is written again."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from ipc_buffers import Memory, list_arenas
from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU
from unifiedserve.engine import engine_weights
from unifiedserve.engine.buffer_sizes import plan_layout
from unifiedserve.engine.engine_weights import EngineWeights
from unifiedserve.memory.memory_plan import sum_in_host
from unifiedserve.models.processor import Processor

SMALL = {"kv_cache_mib": 4, "patch_buffer_mib": 3, "visual_buffer_mib": 2, "visual_cache_mib": 1, "device": "cpu"}
DTYPE = "float32"

Start = Callable[..., tuple[EngineWeights, list[Memory]]]


@pytest.fixture
def start(
    checkpoint: Path, ours: Processor, arena_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Start]:
    """Loads the weights as an engine that starts, by options, and returns their memories, too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(engine_weights, "_WORTH_KEEPING", 0)
    with ExitStack() as ends:

        def begin(node: int | None = None, **options: object) -> tuple[EngineWeights, list[Memory]]:
            config = EngineConfig.of(**SMALL, **options)
            layout = plan_layout(config, config.machine.workers, ours, DTYPE, "none", arena_name, CPU)
            placed = {name: msgspec.structs.replace(own, node=node) for name, own in layout.memories.items()}
            layout = msgspec.structs.replace(layout, memories=placed)
            weights = EngineWeights(config, checkpoint, ours.config, CPU, DTYPE)
            ends.callback(weights.free)
            weights.plan(layout)
            weights.load()
            return weights, [Memory.attach(own.weights) for own in layout.memories.values() if own.weights]

        yield begin


def contents(memories: list[Memory]) -> list[bytes]:
    return [memory.read(0, memory.nbytes) for memory in memories]


@pytest.mark.parametrize("placement", ["shared", "e@mem0+p@mem1+d@mem2"])
def test_a_second_start_maps_what_the_first_has_kept(start: Start, placement: str) -> None:
    first, made = start(placement=placement)
    assert all(memory.writable for memory in made)
    expected = contents(made)
    first.keep(first.sum())
    first.free()
    second, mapped = start(placement=placement)
    assert not any(memory.writable for memory in mapped)
    assert contents(mapped) == expected
    assert second.sum() == [sum_in_host(memory) for memory in mapped]
    second.keep(second.sum())  # it is there already


def test_with_memory_for_each_node_they_are_copied_to_be_near(start: Start) -> None:
    first, made = start()
    expected = contents(made)
    first.keep(first.sum())
    first.free()
    _, copied = start(node=0)
    assert all(memory.writable for memory in copied)
    assert contents(copied) == expected
    assert [arena.name for arena in list_arenas() if arena.name.endswith("-kept")] == []


def test_damaged_ones_are_written_again_in_memory_of_their_own(start: Start, tmp_path: Path) -> None:
    first, made = start()
    expected, sums = contents(made), first.sum()
    first.keep(sums)
    first.free()
    weights, (mapped,) = start()
    (file,) = tmp_path.rglob("*.safetensors")
    with file.open("r+b") as damaged:
        damaged.seek(-100, os.SEEK_END)
        damaged.write(b"damage")
    assert weights.sum() != sums
    weights.load_again()
    assert weights.sum() == sums
    again = Memory.attach(mapped.name)
    assert again.writable
    assert contents([again]) == expected


def test_without_a_cache_nothing_is_kept(start: Start, tmp_path: Path) -> None:
    weights, _ = start(no_weight_cache=True)
    weights.keep(weights.sum())
    assert not list(tmp_path.rglob("*.safetensors"))
