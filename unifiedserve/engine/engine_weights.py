"""Hold the weights of one engine: those of each rank in each memory, from the checkpoint or an earlier start."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ipc_buffers import Memory
from unifiedserve.config import MIB, EngineConfig
from unifiedserve.device import Device
from unifiedserve.engine.weight_origin import origin_of
from unifiedserve.memory.kept_weights import KeptWeights, Origin, copy_all
from unifiedserve.memory.memory_plan import MemoryPlan, sum_in_host
from unifiedserve.memory.numa_policy import near_node
from unifiedserve.memory.shared import EngineLayout, free
from unifiedserve.placement import Network
from unifiedserve.placement.cores import cores_by_node
from unifiedserve.placement.numa import nodes_of_ranks
from unifiedserve.user_cache import weights_folder

if TYPE_CHECKING:
    from unifiedserve.engine.weight_maker import WeightMaker

_WORTH_KEEPING = 4 * MIB  # of all memories


class _Planned(NamedTuple):
    """Describe a rank's weights in a memory: how they lie, what they are made from, near which NUMA node."""

    plan: MemoryPlan
    rank: int
    origin: Origin | None  # None: they are never kept
    kept: bool  # an earlier start has left them
    node: int | None


class EngineWeights:
    """Own the memories of all ranks' weights."""

    def __init__(self, config: EngineConfig, model_dir: Path, model_config: Any, device: Device, dtype: str) -> None:
        """Take nothing yet."""
        self._config = config
        self._model_dir = model_dir
        self._model_config = model_config
        self._device = device
        self._dtype = dtype
        self._ranks = config.machine.tensor_parallel_size
        self._kept = KeptWeights(weights_folder())
        self._maker: WeightMaker | None = None
        self._planned: list[_Planned] = []
        self._memories: list[Memory] = []  # of the planned weights

    def plan(self, layout: EngineLayout) -> dict[str, list[int]]:
        """Return the bytes of each rank's weights, by memory. Raises ConfigError as `weight_source` does."""
        sizes: dict[str, list[int]] = {}
        self._planned = []
        for key, memory in layout.memories.items():
            nodes = self._nodes_of_ranks(key) if memory.node is None else [memory.node] * self._ranks
            places = zip(memory.weights_of_ranks, memory.place_of_ranks, nodes, strict=False)
            own = [
                self._plan(name, place, rank, memory.networks, node) for rank, (name, place, node) in enumerate(places)
            ]
            sizes[key] = [each.plan.size for each in own]
            self._planned += own
        return sizes

    def load(self) -> None:
        """Have the weights that were planned, near their ranks' cores. Raises ConfigError."""
        new: list[tuple[int, Memory]] = []
        for each in self._planned:
            memory = self._find(each)
            if memory is None:
                with near_node(each.node):
                    memory = each.plan.create()
                new.append((each.rank, memory))
            self._memories.append(memory)
        if new:
            self._write(new)

    def load_again(self) -> None:
        """Write the weights again, while nobody reads them. Raises ConfigError if the checkpoint cannot be read."""
        self._memories = [_writable(memory) for memory in self._memories]
        self._write([(each.rank, memory) for each, memory in zip(self._planned, self._memories, strict=True)])

    def sum(self) -> list[int]:
        """Return a sum over the bytes of each host copy, for comparison."""
        return [sum_in_host(memory) for memory in self._memories if memory.place == "host"]

    def keep(self, sums: Sequence[int]) -> None:
        """Keep host memory's weights on disk for the next start; takes seconds.

        `sums` are those of `sum`.
        """
        if not self._may_keep or sum(each.plan.size for each in self._planned) < _WORTH_KEEPING:
            return
        for each, memory, total in zip(self._planned, self._memories, sums, strict=True):
            if each.origin:
                self._kept.keep(memory, total, each.origin)

    def free(self) -> None:
        """Remove all; safe to call twice."""
        self._kept.close()
        free(self._memories)

    def _plan(self, name: str, place: str, rank: int, networks: Collection[Network], node: int | None) -> _Planned:
        origin = self._origin(rank, networks) if self._may_keep else None
        kept = self._kept.plan(name, place, origin) if origin else None
        plan = kept or self._made().plan(name, place, rank, networks)
        return _Planned(plan, rank, origin, kept is not None, node)

    def _write(self, memories: Collection[tuple[int, Memory]]) -> None:
        """Make the weights of these ranks in these memories."""
        self._made().write([[memory for own, memory in memories if own == rank] for rank in range(self._ranks)])
        self._maker = None  # it keeps the checkpoint open

    def _made(self) -> WeightMaker:
        """Return what makes weights."""
        if self._maker is None:
            from unifiedserve.engine.weight_maker import WeightMaker  # brings in torch

            self._maker = WeightMaker(self._config, self._model_dir, self._model_config, self._device, self._dtype)
        return self._maker

    def _find(self, planned: _Planned) -> Memory | None:
        """Return weights that an earlier start has kept: those of the file, or a copy near a node."""
        plan, origin = planned.plan, planned.origin
        if origin is None or not planned.kept:
            return None
        if planned.node is None:
            return self._kept.map(plan, origin)
        kept = self._kept.map(plan._replace(name=f"{plan.name}-kept"), origin)
        if kept is None:
            return None
        with near_node(planned.node):
            memory = plan.create()
        copy_all(kept, memory)
        return memory

    @property
    def _may_keep(self) -> bool:
        options = self._config.checkpoint
        return self._device.panels(self._dtype) and options.load_format == "auto" and not options.no_weight_cache

    def _nodes_of_ranks(self, memory: str) -> list[int | None]:
        """Return the NUMA node of each rank in a memory.

        It is None where workers' ranks have cores of several nodes.
        """
        workers = [each for each in self._config.machine.workers.instances if each.memory == memory]
        cores = {each.cores for each in workers if self._config.machine.ranks_of(each) > 1}
        if len(cores) != 1:
            return [None] * self._ranks
        return nodes_of_ranks(cores_by_node(cores.pop() or os.sched_getaffinity(0)), self._ranks)

    def _origin(self, rank: int, networks: Collection[Network]) -> Origin:
        return origin_of(self._config, self._model_dir, self._dtype, rank, networks)


def _writable(memory: Memory) -> Memory:
    """Return a memory that can be written to; one of its own replaces a file's bytes."""
    if memory.writable:
        return memory
    plan = MemoryPlan(memory.name, memory.nbytes, memory.place, memory.manifest)
    memory.close()
    memory.unlink()
    return plan.create()
