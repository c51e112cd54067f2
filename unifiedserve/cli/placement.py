"""Run `unifiedserve placement`: workers, cores and memory, before anything is started."""

import os
from collections.abc import Mapping, Sequence

import torch
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table

from unifiedserve.config import MIB, EngineConfig
from unifiedserve.device import CPU, select_device
from unifiedserve.engine.buffer_sizes import dtype_of, plan_layout
from unifiedserve.engine.checkpoint import load_checkpoint
from unifiedserve.engine.resources import (
    WORKER_MIB,
    check_memories,
    check_memory,
    check_sandbox,
    check_threads,
    shared_sizes,
)
from unifiedserve.engine.weight_source import bytes_by_memory, sources_of_ranks, wanted_by
from unifiedserve.memory.shared import EngineLayout, MemoryLayout
from unifiedserve.memory.weights import weights_bytes
from unifiedserve.placement import Instance, Network, Placement, Stage
from unifiedserve.placement.cores import write_cores

Sizes = Mapping[str, int]  # bytes by use
SizesOfRanks = Mapping[str, Sequence[int]]  # bytes of weights, by memory and rank

_READS = {
    Stage.ENCODE: (Network.ENCODER, "patch buffer", "visual buffer"),
    Stage.PREFILL: (Network.LANGUAGE, "visual buffer", "KV cache"),
    Stage.DECODE: (Network.LANGUAGE, "KV cache"),
}
_WRITES = "patch buffer"  # where vision writes, in each memory that has one


def run(config: EngineConfig, console: Console) -> None:
    """Draw the placement of `config`.

    Raises ConfigError, with the numbers, for a placement that does not fit or cannot be.
    """
    config.check()
    check_threads(config)
    placement = config.machine.workers
    layout, weights, networks = _planned(config)
    memories = _sizes(layout, weights, networks)
    console.print(_drawing(placement, memories, sorted(os.sched_getaffinity(0))))
    if len(memories) == 1:
        (sizes,) = memories.values()
        _print_sum(console, "shared by all of them", {**sizes, "queues": layout.queue_bytes})
    else:
        for memory, sizes in memories.items():
            _print_sum(console, f"{memory}{_where(layout.memories[memory])}", sizes)
        _print_sum(console, "shared by all of them", {"queues": layout.queue_bytes})
    workers = config.machine.processes
    console.print(f"and of their own: {workers} x {WORKER_MIB} = {workers * WORKER_MIB:,} MiB at most when idle")
    check_memories(config)
    check_sandbox(config)
    check_memory(shared_sizes(layout, weights), workers)


def _planned(config: EngineConfig) -> tuple[EngineLayout, SizesOfRanks, Mapping[Network, int]]:
    """Return the layout, and the bytes of the weights, by memory and by network. Networks are the model's."""
    device = select_device(config)
    model_dir, processor, _ = load_checkpoint(config)
    dtype = dtype_of(config, device)
    layout = plan_layout(config, config.machine.workers, processor, dtype, "none", "none", device)
    own: torch.dtype = getattr(torch, dtype)
    sources = sources_of_ranks(config, model_dir, processor.config, device, dtype)
    networks = {
        network: sum(weights_bytes(source, own, wanted_by([network], processor.config)) for source in sources)
        for network in reversed(Network)
    }
    return layout, bytes_by_memory(layout, sources, processor.config, dtype), networks


def _sizes(layout: EngineLayout, weights: SizesOfRanks, networks: Mapping[Network, int]) -> dict[str, Sizes]:
    """Return what lies in each memory, but for what it has none of."""
    found: dict[str, Sizes] = {}
    for memory, segments in layout.segments(weights).items():
        there: dict[str, int] = {
            network: size for network, size in networks.items() if network in layout.memories[memory].networks
        }
        buffers = {use: size for use, size in segments.items() if size and use != "weights"}
        found[memory] = {**there, **buffers}
    return found


def _where(memory: MemoryLayout) -> str:
    if memory.place != CPU.place:
        return f", on {' and '.join(memory.place_of_ranks)}"
    return "" if memory.node is None else f", of node{memory.node}"


def _print_sum(console: Console, what: str, sizes: Sizes) -> None:
    parts = " + ".join(f"{use} {_mib(size)}" for use, size in sizes.items())
    total = f" = {sum(sizes.values()) // MIB:,}" if len(sizes) > 1 else ""
    console.print(f"{what}: {parts}{total} MiB" if sizes else f"{what}: nothing")


def _used(memories: Mapping[str, Sizes], instance: Instance) -> list[str]:
    """Return what of the memories an instance reads or writes."""
    uses = {use for stage in instance.stages for use in _READS.get(stage, ())}
    used = {(instance.memory, use) for use in memories[instance.memory] if use in uses}
    if Stage.VISION in instance.stages:
        used |= {(memory, _WRITES) for memory, sizes in memories.items() if _WRITES in sizes}
    return [
        f"{use}{f' of {memory}' if len(memories) > 1 else ''} {_mib(size)}"
        for memory, sizes in memories.items()
        for use, size in sizes.items()
        if (memory, use) in used
    ]


def _drawing(placement: Placement, memories: Mapping[str, Sizes], available: list[int]) -> Group:
    """Return a box for each set of cores, with the workers that run there."""
    groups: dict[tuple[int, ...], list[Instance]] = {}
    for instance in placement.instances:
        groups.setdefault(instance.cores or tuple(available), []).append(instance)
    return Group(*(_box(cores, instances, memories) for cores, instances in groups.items()))


def _box(cores: tuple[int, ...], instances: list[Instance], memories: Mapping[str, Sizes]) -> Panel:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("worker", "stages", "nice", "reads and writes, in MiB"):
        table.add_column(column, overflow="fold")
    for instance in instances:
        used = ", ".join(_used(memories, instance))
        table.add_row(instance.name, " + ".join(instance.stages), str(instance.nice), used)
    word = "core" if len(cores) == 1 else "cores"
    return Panel(table, title=f"{word} {write_cores(cores)}", title_align="left", expand=False)


def _mib(size: int) -> str:
    return f"{-(-size // MIB):,}"
