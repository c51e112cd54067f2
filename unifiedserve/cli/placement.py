"""`unifiedserve placement`: the workers of a placement, their cores and their memory, before anything is started."""

import os
from collections.abc import Mapping

import torch
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table

from unifiedserve.config import MIB, EngineConfig
from unifiedserve.device.selection import select_device
from unifiedserve.engine.buffer_sizes import dtype_of, plan_layout
from unifiedserve.engine.checkpoint import load_checkpoint
from unifiedserve.engine.resources import WORKER_MIB, check_memory, check_sandbox, check_threads
from unifiedserve.engine.weight_source import weight_source
from unifiedserve.memory.weights import weights_bytes
from unifiedserve.models.loading import encoder_elements
from unifiedserve.placement import Instance, Placement, Stage
from unifiedserve.placement.cores import write_cores

Sizes = Mapping[str, int]  # bytes by use

_READS = {
    Stage.VISION: ("patch buffer",),
    Stage.ENCODE: ("encoder", "patch buffer", "visual buffer"),
    Stage.PREFILL: ("language model", "visual buffer", "KV cache"),
    Stage.DECODE: ("language model", "KV cache"),
}


def run(config: EngineConfig, console: Console) -> None:
    """Draw the placement of `config`. Raises ConfigError, with the numbers, for what does not fit or cannot be."""
    config.check()
    check_threads(config)
    sizes = _sizes(config)
    placement = config.machine.workers
    console.print(_drawing(placement, sizes, sorted(os.sched_getaffinity(0))))
    total = sum(sizes.values()) // MIB
    parts = " + ".join(f"{use} {_mib(size)}" for use, size in sizes.items())
    workers = len(placement.instances)
    console.print(f"shared by all of them: {parts} = {total:,} MiB")
    console.print(f"and of their own: {workers} x {WORKER_MIB} = {workers * WORKER_MIB:,} MiB at most when idle")
    check_sandbox(config)
    check_memory(sizes, workers)


def _sizes(config: EngineConfig) -> Sizes:
    """Return what lies in shared memory."""
    device = select_device(config)
    model_dir, processor = load_checkpoint(config)
    dtype = dtype_of(config, device)
    layout = plan_layout(config, processor, dtype, "none", "none", device.place)
    own: torch.dtype = getattr(torch, dtype)
    weights = weights_bytes(weight_source(config, model_dir, processor.config, device, dtype), own)
    encoder = encoder_elements(processor.config) * own.itemsize
    return {"language model": weights - encoder, "encoder": encoder, **layout.segments()}


def _used(sizes: Sizes, instance: Instance) -> Sizes:
    """Return what of it an instance reads or writes."""
    uses = {use for stage in instance.stages for use in _READS[stage]}
    return {use: size for use, size in sizes.items() if use in uses}


def _drawing(placement: Placement, sizes: Sizes, available: list[int]) -> Group:
    """Return a box for each set of cores, with the workers that run there."""
    groups: dict[tuple[int, ...], list[Instance]] = {}
    for instance in placement.instances:
        groups.setdefault(instance.cores or tuple(available), []).append(instance)
    return Group(*(_box(cores, instances, sizes) for cores, instances in groups.items()))


def _box(cores: tuple[int, ...], instances: list[Instance], sizes: Sizes) -> Panel:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("worker", "stages", "nice", "reads and writes, in MiB"):
        table.add_column(column, overflow="fold")
    for instance in instances:
        used = ", ".join(f"{use} {_mib(size)}" for use, size in _used(sizes, instance).items())
        table.add_row(instance.name, " + ".join(instance.stages), str(instance.nice), used)
    word = "core" if len(cores) == 1 else "cores"
    return Panel(table, title=f"{word} {write_cores(cores)}", title_align="left", expand=False)


def _mib(size: int) -> str:
    return f"{-(-size // MIB):,}"
