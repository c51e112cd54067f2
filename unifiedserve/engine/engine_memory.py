"""Hold the shared memory of one engine."""

import logging
import os
import secrets
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import msgspec
import torch

from ipc_buffers import Memory
from unifiedserve.config import MIB, EngineConfig
from unifiedserve.device import Device
from unifiedserve.engine.buffer_sizes import dtype_of, plan_layout
from unifiedserve.engine.device_sizes import DeviceSizes
from unifiedserve.engine.rehearsal import Footprint, rehearse_alone
from unifiedserve.engine.resources import check_memory, shared_sizes
from unifiedserve.engine.weight_source import bytes_by_memory, origin_of, sources_of_ranks, wanted_by
from unifiedserve.memory.kept_weights import KeptWeights, Origin
from unifiedserve.memory.numa_policy import near_node
from unifiedserve.memory.shared import EngineLayout, PoolKey, SharedMemory, create_pages, free
from unifiedserve.memory.tensors import Tensors
from unifiedserve.memory.weights import create_weights, sum_in_host, write_weights
from unifiedserve.models.base import Processor
from unifiedserve.observe.start import begin_step
from unifiedserve.placement import Stage
from unifiedserve.placement.cores import cores_by_node
from unifiedserve.placement.numa import nodes_of_ranks
from unifiedserve.user_cache import weights_folder

_log = logging.getLogger(__name__)
_WORTH_KEEPING = 64 * MIB

Rehearse = Callable[[SharedMemory, str, Collection[Stage]], Footprint]  # over buffers, with a dtype, of these stages


class EngineMemory:
    """Hold weights and pages for the engine's life. Pools and queues last for one generation of workers."""

    def __init__(
        self, config: EngineConfig, model_dir: Path, processor: Processor, device: Device, rehearse: Rehearse
    ) -> None:
        """Allocate everything and load the weights.

        On devices with memory of their own, `rehearse` finds out what workers of each memory take. Raises ConfigError,
        with the numbers, if the machine or a device has too little memory; nothing is left behind then.
        """
        self._config = config
        self._model_dir = model_dir
        self._kept = KeptWeights(weights_folder())
        self._processor = processor
        self._device = device
        self._engine_id = f"{os.getpid()}-{secrets.token_hex(3)}"
        self.dtype = dtype_of(config, device)
        device.check(self.dtype)
        self.share = 1.0  # of their budgets, with which encoding and prefill begin beside streams
        self.generation = 0  # of workers: how often they were restarted
        self._layout = plan_layout(
            config,
            config.machine.workers,
            processor,
            self.dtype,
            f"{self._engine_id}-{self.generation}",
            self.arena_name("weights"),
            device,
        )
        self._sizes = DeviceSizes(config, processor, device)
        sources = self._sources(model_dir)
        self._weights_bytes = bytes_by_memory(self._layout, sources, processor.config, self.dtype)
        self.uses = self._sum("weights")  # bytes of the device's memory
        self._check()
        if warning := device.slowness():
            _log.warning(warning)
        self._pages: dict[PoolKey, Memory] = {}
        with ExitStack() as undo, ThreadPoolExecutor(1) as beside:
            undo.callback(lambda: free(self._pages.values()))
            early = beside.submit(self._take_pages) if device.room() is None else None  # their sizes are known
            begin_step(f"loading the weights, {self.uses['weights'] / MIB:,.0f} MiB in {self.dtype}")
            self._weights: list[list[Memory]] = [[] for _ in sources]  # by rank, of each memory that has them
            undo.callback(lambda: free(self._all_weights))
            self._create_weights(sources)
            self._fill_weights(sources)
            begin_step("taking memory for the KV cache and the buffers")
            self._layout = self._sized(rehearse)
            self.uses |= self._sum("KV cache", "patch buffer", "visual buffer")
            early.result() if early else self._take_pages()
            self.shared = SharedMemory.create(self._layout, self._pages)
            undo.callback(self._free_shared)
            self._owned = undo.pop_all()

    def renew(self, *, keeps: bool = False) -> None:
        """Replace queues and pools by fresh ones over the same pages. Workers of the next generation use them.

        `keeps`: the pools stay, and with them the knowledge of what free pages hold.
        """
        before = self.shared
        pools = before.hand_over_pools() if keeps else None
        before.unlink()
        self.generation += 1
        own = f"{self._engine_id}-{self.generation}"
        pools_id = (before.layout.pools_id or before.layout.engine_id) if keeps else own
        layout = msgspec.structs.replace(self._layout, engine_id=own, pools_id=pools_id)
        self.shared = SharedMemory.create(layout, self._pages, pools)

    def sum_weights(self) -> list[int]:
        """Return a sum over the bytes of each host copy of the weights, for comparison."""
        return [sum_in_host(weights) for weights in self._all_weights if weights.place == "host"]

    def keep_weights(self, sums: Sequence[int]) -> None:
        """Keep host memory's weights on disk for the next start; takes seconds.

        `sums` are those of `sum_weights`.
        """
        if not self._keeps:
            return
        ranks = [rank for rank, of_rank in enumerate(self._weights) for _ in of_rank]
        for rank, weights, total in zip(ranks, self._all_weights, sums, strict=True):
            self._kept.keep(weights, total, self._origin(rank))

    def load_again(self, model_dir: Path) -> None:
        """Write the weights again, while nobody reads them. Raises ConfigError if the checkpoint cannot be read."""
        self._write_weights(self._sources(model_dir))

    def free(self) -> None:
        """Remove every segment; safe to call twice."""
        self._kept.close()
        self._owned.close()

    def arena_name(self, name: str) -> str:
        """Return a name for a further arena of this engine."""
        return f"{self._engine_id}-{name}"

    @property
    def _torch_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    @property
    def _all_weights(self) -> list[Memory]:
        return [weights for of_rank in self._weights for weights in of_rank]

    def _sources(self, model_dir: Path) -> list[Tensors]:
        return sources_of_ranks(self._config, model_dir, self._processor.config, self._device, self.dtype)

    def _create_weights(self, sources: Sequence[Tensors]) -> None:
        """Take room for the weights of each rank in each memory that needs some.

        It is near the rank's cores.
        """
        for key, memory in self._layout.memories.items():
            wanted = wanted_by(memory.networks, self._processor.config)
            nodes = self._nodes_of_ranks(key, len(sources)) if memory.node is None else [memory.node] * len(sources)
            ranks = zip(memory.weights_of_ranks, memory.place_of_ranks, sources, self._weights, nodes, strict=False)
            for name, place, source, of_rank, node in ranks:
                with near_node(node):
                    of_rank.append(create_weights(source, name, self._torch_dtype, place, wanted))

    def _nodes_of_ranks(self, memory: str, ranks: int) -> list[int | None]:
        """Return the NUMA node of each rank in a memory.

        It is None where workers' ranks have cores of several nodes.
        """
        workers = [each for each in self._config.machine.workers.instances if each.memory == memory]
        cores = {each.cores for each in workers if self._config.machine.ranks_of(each) > 1}
        if len(cores) != 1:
            return [None] * ranks
        return nodes_of_ranks(cores_by_node(cores.pop() or os.sched_getaffinity(0)), ranks)

    @property
    def _keeps(self) -> bool:
        """Return whether weights are kept on disk, because they take a while to make."""
        options = self._config.checkpoint
        worth_it = self._device.panels(self.dtype) and self.uses["weights"] >= _WORTH_KEEPING
        return worth_it and options.load_format == "auto" and not options.no_weight_cache

    def _origin(self, rank: int) -> Origin:
        return origin_of(self._config, self._model_dir, self.dtype, rank)

    def _fill_weights(self, sources: Sequence[Tensors]) -> None:
        """Read the weights that an earlier start has kept, and make all others."""
        for rank, (of_rank, source) in enumerate(zip(self._weights, sources, strict=True)):
            new = [each for each in of_rank if not (self._keeps and self._kept.restore(each, self._origin(rank)))]
            if new:
                write_weights(new, source)

    def _take_pages(self) -> None:
        self._pages = create_pages(self._layout, self._engine_id)

    def _write_weights(self, sources: Sequence[Tensors]) -> None:
        for of_rank, source in zip(self._weights, sources, strict=True):
            write_weights(of_rank, source)

    def _sum(self, *uses: str) -> dict[str, int]:
        """Return the bytes of all memories for these uses."""
        sizes = self._layout.segments(self._weights_bytes).values()
        return {use: sum(own[use] for own in sizes) for use in uses}

    def _check(self) -> None:
        """Raise ConfigError if it is known before that the weights or buffers do not fit."""
        layout = self._layout
        if self._device.room() is None:
            check_memory(shared_sizes(layout, self._weights_bytes), self._config.machine.processes)
            return
        self._sizes.check(layout, self._weights_bytes)
        check_memory({"queues": layout.queue_bytes}, len(layout.instances))

    def _sized(self, rehearse: Rehearse) -> EngineLayout:
        """Return the layout with the largest KV caches that a device allows. A size that is given stays."""
        if self._device.room() is None:
            return self._layout
        footprints = {
            name: self._rehearsed(name, rehearse) for name, own in self._layout.memories.items() if own.weights
        }
        self.share = min(footprint.share for footprint in footprints.values())
        layout, workers = self._sizes.sized(self._layout, footprints)
        self.uses |= workers
        return layout

    def _rehearsed(self, name: str, rehearse: Rehearse) -> Footprint:
        """Return what a worker of the memory of that name takes of its device."""
        stages = self._config.machine.workers.hosted_in(name)
        memory = self._layout.memories[name]
        return rehearse_alone(self._layout, memory, lambda shared: rehearse(shared, self.dtype, stages))

    def _free_shared(self) -> None:
        self.shared.unlink()
