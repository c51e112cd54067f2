"""The shared memory of one engine."""

import logging
import os
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec
import torch

from ipc_buffers import Memory
from unifiedserve.config import MIB, EngineConfig
from unifiedserve.device import Device
from unifiedserve.engine.buffer_sizes import dtype_of, plan_layout
from unifiedserve.engine.device_room import check_context, check_room, describe, unseen_bytes, workers_bytes
from unifiedserve.engine.rehearsal import Footprint, rehearse_alone
from unifiedserve.engine.resources import check_memory, shared_sizes
from unifiedserve.engine.weight_source import bytes_by_memory, wanted_by, weight_source
from unifiedserve.memory.numa_policy import near_node
from unifiedserve.memory.shared import EngineLayout, PoolSize, SharedMemory, create_pages, free
from unifiedserve.memory.tensors import Tensors
from unifiedserve.memory.weights import create_weights, sum_in_host, write_weights
from unifiedserve.models.base import Processor
from unifiedserve.observe.start import begin_step

_log = logging.getLogger(__name__)

Rehearse = Callable[[SharedMemory, str], Footprint]  # over buffers, with a dtype


class EngineMemory:
    """The weights and pages, for the engine's whole life, and the pools and queues of one generation of workers."""

    def __init__(
        self, config: EngineConfig, model_dir: Path, processor: Processor, device: Device, rehearse: Rehearse
    ) -> None:
        """Allocate everything and load the weights.

        On a device with memory of its own, `rehearse` finds out what workers take of it. Raises ConfigError, with the
        numbers, if the machine or the device has too little memory; nothing is left behind then.
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
            device.place,
        )
        tensors = self._tensors(model_dir)
        self._weights_bytes = bytes_by_memory(self._layout, tensors, processor.config, self.dtype)
        self.uses = self._sum("weights")  # bytes of the device's memory
        self._check()
        if warning := device.slowness():
            _log.warning(warning)
        with ExitStack() as undo:
            begin_step(f"loading the weights, {self.uses['weights'] / MIB:,.0f} MiB in {self.dtype}")
            self._weights: list[Memory] = []  # of each memory that has them
            undo.callback(free, self._weights)
            self._create_weights(tensors)
            write_weights(self._weights, tensors)
            begin_step("taking memory for the KV cache and the buffers")
            self._layout = self._sized(rehearse)
            self.uses |= self._sum("KV cache", "patch buffer", "visual buffer")
            self._pages = create_pages(self._layout, self._engine_id)
            undo.callback(free, self._pages.values())
            self.shared = SharedMemory.create(self._layout, self._pages)
            undo.callback(self._free_shared)
            self._owned = undo.pop_all()

    def renew(self, *, keeps: bool = False) -> None:
        """Replace queues and pools by fresh ones over the same pages, for workers of the next generation.

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
        """Return a sum over the bytes of each copy of the weights that is in host memory, to be compared later."""
        return [sum_in_host(weights) for weights in self._weights if weights.place == "host"]

    def load_again(self, model_dir: Path) -> None:
        """Write the weights anew, while nobody reads them. Raises ConfigError if the checkpoint cannot be read."""
        write_weights(self._weights, self._tensors(model_dir))

    def free(self) -> None:
        """Remove every segment; safe to call twice."""
        self._owned.close()

    def arena_name(self, name: str) -> str:
        """Return a name for a further arena of this engine."""
        return f"{self._engine_id}-{name}"

    @property
    def _torch_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    def _tensors(self, model_dir: Path) -> Tensors:
        return weight_source(self._config, model_dir, self._processor.config, self._device, self.dtype)

    def _create_weights(self, tensors: Tensors) -> None:
        """Take memory for the weights in each memory whose stages need some."""
        for memory in self._layout.memories.values():
            if memory.weights:
                wanted = wanted_by(memory.networks, self._processor.config)
                with near_node(memory.node):
                    self._weights.append(
                        create_weights(tensors, memory.weights, self._torch_dtype, memory.place, wanted)
                    )

    def _sum(self, *uses: str) -> dict[str, int]:
        """Return the bytes of all memories for these uses."""
        sizes = self._layout.segments(self._weights_bytes).values()
        return {use: sum(own[use] for own in sizes) for use in uses}

    def _check(self) -> None:
        """Raise ConfigError if it can be known before that the weights or the buffers do not fit."""
        layout, room = self._layout, self._device.room()
        if room is None:
            check_memory(shared_sizes(layout, self._weights_bytes), len(layout.instances))
            return
        kv = {"KV cache": layout.only.kv.bytes} if self._config.memory.kv_cache_mib else {}
        check_room(room, self._config, {**self.uses, **kv, **layout.only.buffers()})
        check_memory({"queues": layout.queue_bytes}, len(layout.instances))

    def _sized(self, rehearse: Rehearse) -> EngineLayout:
        """Return the layout with the KV cache as large as a device's own memory lets it be, if no size is given."""
        room = self._device.room()
        if room is None:
            return self._layout
        footprint = rehearse_alone(self._layout, lambda memory: rehearse(memory, self.dtype))
        self.share = footprint.share
        layout, config = self._layout, self._config
        buffers = layout.only.buffers()
        workers = workers_bytes(config.machine.workers, footprint)
        videos = self._device.video_bytes()
        if (
            not config.memory.kv_cache_mib
        ):  # as if decode took nothing: what it takes depends on how much the cache holds
            left = check_room(room, config, {**buffers, **workers, **unseen_bytes(config.machine.workers, 0, videos)})
            layout = _with_kv_bytes(layout, left)
        workers |= unseen_bytes(config.machine.workers, self._decode_bytes(layout), videos)
        if config.memory.kv_cache_mib:
            check_room(room, config, {"KV cache": layout.only.kv.bytes, **buffers, **workers})
        else:
            layout = _with_kv_bytes(layout, check_room(room, config, {**buffers, **workers}))
        self.uses |= workers
        tokens = self._tokens_held(layout)
        check_context(room, config, tokens)
        _log.info("%s", describe(room, layout, workers, tokens))
        return layout

    def _tokens_held(self, layout: EngineLayout) -> int:
        return (layout.only.kv.pages - layout.state_pages) * self._config.memory.kv_page_tokens

    def _decode_bytes(self, layout: EngineLayout) -> int:
        """Return what a worker's decode takes beside such a KV cache."""
        config, text = self._config, self._processor.config.get_text_config()
        tokens = min(config.checkpoint.max_model_len or text.max_position_embeddings, self._tokens_held(layout))
        return self._device.decode_bytes(text, config.scheduling.max_running, tokens, config.memory.kv_page_tokens)

    def _free_shared(self) -> None:
        self.shared.unlink()


def _with_kv_bytes(layout: EngineLayout, size: int) -> EngineLayout:
    ((name, memory),) = layout.memories.items()
    kv = PoolSize(size // memory.kv.page_bytes, memory.kv.page_bytes)
    return msgspec.structs.replace(layout, memories={name: msgspec.structs.replace(memory, kv=kv)})
