"""Hold the shared memory of one engine."""

import logging
import os
import secrets
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import msgspec

from ipc_buffers import Memory
from unifiedserve.config import MIB, EngineConfig
from unifiedserve.device import Device
from unifiedserve.engine.buffer_sizes import dtype_of, plan_layout
from unifiedserve.engine.device_sizes import DeviceSizes
from unifiedserve.engine.engine_weights import EngineWeights
from unifiedserve.engine.rehearsal import Footprint, rehearse_alone
from unifiedserve.engine.resources import check_memory, shared_sizes
from unifiedserve.memory.shared import EngineLayout, PoolKey, SharedMemory, create_pages, free
from unifiedserve.models.processor import Processor
from unifiedserve.observe.start import begin_step
from unifiedserve.placement import Stage

_log = logging.getLogger(__name__)

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
        self.weights = EngineWeights(config, model_dir, processor.config, device, self.dtype)
        self._weights_bytes = self.weights.plan(self._layout)
        self.uses = self._sum("weights")  # bytes of the device's memory
        self._check()
        if warning := device.slowness():
            _log.warning(warning)
        self._pages: dict[PoolKey, Memory] = {}
        with ExitStack() as undo, ThreadPoolExecutor(1) as beside:
            undo.callback(lambda: free(self._pages.values()))
            early = beside.submit(self._take_pages) if device.room() is None else None  # their sizes are known
            begin_step(f"loading the weights, {self.uses['weights'] / MIB:,.0f} MiB in {self.dtype}")
            undo.callback(self.weights.free)
            self.weights.load()
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

    def free(self) -> None:
        """Remove every segment; safe to call twice."""
        self._owned.close()

    def arena_name(self, name: str) -> str:
        """Return a name for a further arena of this engine."""
        return f"{self._engine_id}-{name}"

    def _take_pages(self) -> None:
        self._pages = create_pages(self._layout, self._engine_id)

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
