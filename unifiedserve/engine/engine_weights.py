"""Hold the weights of one engine: those of each rank in each memory, from the checkpoint or an earlier start."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from ipc_buffers import Memory
from unifiedserve.config import MIB, EngineConfig
from unifiedserve.device import Device
from unifiedserve.engine.weight_source import origin_of, sources_of_ranks, wanted_by
from unifiedserve.memory.kept_weights import KeptWeights, Origin, copy_all
from unifiedserve.memory.numa_policy import near_node
from unifiedserve.memory.shared import EngineLayout, free
from unifiedserve.memory.tensors import Tensors
from unifiedserve.memory.weights import MemoryPlan, plan_memory, sum_in_host, write_weights
from unifiedserve.placement.cores import cores_by_node
from unifiedserve.placement.numa import nodes_of_ranks
from unifiedserve.user_cache import weights_folder

_WORTH_KEEPING = 64 * MIB  # of all memories


class EngineWeights:
    """Own the memories of all ranks' weights."""

    def __init__(self, config: EngineConfig, model_dir: Path, model_config: Any, device: Device, dtype: str) -> None:
        """Take nothing yet."""
        self._config = config
        self._model_dir = model_dir
        self._model_config = model_config
        self._device = device
        self._dtype = dtype
        self._kept = KeptWeights(weights_folder())
        self._memories: list[list[Memory]] = []  # by rank, of each memory that has them
        self._keeps = False  # on disk, because they take a while to make

    def sources(self) -> list[Tensors]:
        """Return the tensors to store for each rank. Raises ConfigError as `weight_source` does."""
        return sources_of_ranks(self._config, self._model_dir, self._model_config, self._device, self._dtype)

    def load(self, layout: EngineLayout, sources: Sequence[Tensors]) -> None:
        """Have each rank's weights in each memory that needs some, near the rank's cores. Raises ConfigError."""
        self._memories = [[] for _ in sources]
        new: list[list[Memory]] = [[] for _ in sources]
        plans = list(self._plans(layout, sources))
        self._keeps = self._worth_keeping(sum(plan.size for plan, _, _ in plans))
        for plan, rank, node in plans:
            memory = self._find(plan, rank, node)
            if memory is None:
                with near_node(node):
                    memory = plan.create()
                new[rank].append(memory)
            self._memories[rank].append(memory)
        for memories, source in zip(new, sources, strict=True):
            if memories:
                write_weights(memories, source)

    def load_again(self) -> None:
        """Write the weights again, while nobody reads them. Raises ConfigError if the checkpoint cannot be read."""
        self._memories = [[_writable(memory) for memory in memories] for memories in self._memories]
        for memories, source in zip(self._memories, self.sources(), strict=True):
            write_weights(memories, source)

    def sum(self) -> list[int]:
        """Return a sum over the bytes of each host copy, for comparison."""
        return [sum_in_host(memory) for memory in self._all if memory.place == "host"]

    def keep(self, sums: Sequence[int]) -> None:
        """Keep host memory's weights on disk for the next start; takes seconds.

        `sums` are those of `sum`.
        """
        if not self._keeps:
            return
        ranks = [rank for rank, memories in enumerate(self._memories) for _ in memories]
        for rank, memory, total in zip(ranks, self._all, sums, strict=True):
            self._kept.keep(memory, total, self._origin(rank))

    def free(self) -> None:
        """Remove all; safe to call twice."""
        self._kept.close()
        free(self._all)

    def _plans(self, layout: EngineLayout, sources: Sequence[Tensors]) -> Iterator[tuple[MemoryPlan, int, int | None]]:
        """Yield each memory of weights, with its rank and the NUMA node near it."""
        dtype: torch.dtype = getattr(torch, self._dtype)
        for key, memory in layout.memories.items():
            wanted = wanted_by(memory.networks, self._model_config)
            nodes = self._nodes_of_ranks(key, len(sources)) if memory.node is None else [memory.node] * len(sources)
            ranks = zip(memory.weights_of_ranks, memory.place_of_ranks, sources, nodes, strict=False)
            for rank, (name, place, source, node) in enumerate(ranks):
                yield plan_memory(source, name, dtype, place, wanted), rank, node

    def _find(self, plan: MemoryPlan, rank: int, node: int | None) -> Memory | None:
        """Return weights that an earlier start has kept: those of the file, or a copy near a node."""
        if not self._keeps:
            return None
        if node is None:
            return self._kept.find(plan, self._origin(rank))
        kept = self._kept.find(plan._replace(name=f"{plan.name}-kept"), self._origin(rank))
        if kept is None:
            return None
        with near_node(node):
            memory = plan.create()
        copy_all(kept, memory)
        return memory

    def _worth_keeping(self, size: int) -> bool:
        options = self._config.checkpoint
        takes_a_while = self._device.panels(self._dtype) and size >= _WORTH_KEEPING
        return takes_a_while and options.load_format == "auto" and not options.no_weight_cache

    def _nodes_of_ranks(self, memory: str, ranks: int) -> list[int | None]:
        """Return the NUMA node of each rank in a memory.

        It is None where workers' ranks have cores of several nodes.
        """
        workers = [each for each in self._config.machine.workers.instances if each.memory == memory]
        cores = {each.cores for each in workers if self._config.machine.ranks_of(each) > 1}
        if len(cores) != 1:
            return [None] * ranks
        return nodes_of_ranks(cores_by_node(cores.pop() or os.sched_getaffinity(0)), ranks)

    def _origin(self, rank: int) -> Origin:
        return origin_of(self._config, self._model_dir, self._dtype, rank)

    @property
    def _all(self) -> list[Memory]:
        return [memory for memories in self._memories for memory in memories]


def _writable(memory: Memory) -> Memory:
    """Return a memory that can be written to; one of its own replaces a file's bytes."""
    if memory.writable:
        return memory
    plan = MemoryPlan(memory.name, memory.nbytes, memory.place, memory.manifest)
    memory.close()
    memory.unlink()
    return plan.create()
