"""The shared memory of one engine."""

import logging
import os
import secrets
from contextlib import ExitStack
from pathlib import Path

import torch

from unifiedserve.config import MIB, EngineConfig
from unifiedserve.device import Device
from unifiedserve.engine.resources import check_memory
from unifiedserve.errors import ConfigError
from unifiedserve.memory.kv_cache import KVLayout
from unifiedserve.memory.shared import MemoryLayout, PoolSize, SharedMemory
from unifiedserve.memory.weights import load_weights, weights_bytes
from unifiedserve.models.base import Processor

_log = logging.getLogger(__name__)


class EngineMemory:
    """The weights, for the engine's whole life, and the pools and queues of one generation of workers."""

    def __init__(self, config: EngineConfig, model_dir: Path, processor: Processor, device: Device) -> None:
        """Allocate everything and load the weights.

        Raises ConfigError, with the numbers, if the machine has too little memory; nothing is left behind then.
        """
        self._config = config
        self._processor = processor
        self._place = device.place
        self._engine_id = f"{os.getpid()}-{secrets.token_hex(3)}"
        self.dtype = device.best_dtype() if config.dtype == "auto" else config.dtype
        device.check_dtype(self.dtype)
        self.generation = 0  # of workers: how often they were restarted
        layout = self._layout()
        weights = weights_bytes(model_dir, self._torch_dtype)
        check_memory({"weights": weights, **layout.segments()}, len(layout.instances))
        if warning := device.slowness():
            _log.warning(warning)
        with ExitStack() as undo:
            self.shared = SharedMemory.create(layout)
            undo.callback(self._free_shared)
            self._load_weights(model_dir, layout.weights, undo)
            self._owned = undo.pop_all()

    def renew(self) -> None:
        """Replace pools and queues by fresh ones, for workers of the next generation."""
        self.shared.unlink()
        self.generation += 1
        self.shared = SharedMemory.create(self._layout())

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

    def _layout(self) -> MemoryLayout:
        config, processor = self._config, self._processor
        kv = KVLayout.of(processor.config, config.kv_page_tokens, self._torch_dtype)
        return MemoryLayout(
            engine_id=f"{self._engine_id}-{self.generation}",
            weights=self.arena_name("weights"),
            kv=_pool("kv_cache_mib", config.kv_cache_mib, kv.page_bytes),
            patch=_pool(
                "patch_buffer_mib",
                config.patch_buffer_mib,
                config.patch_page_rows * processor.patch_row_bytes,
            ),
            visual=_pool(
                "visual_buffer_mib",
                config.visual_buffer_mib + config.visual_cache_mib,
                config.visual_page_tokens * processor.visual_dim * self._torch_dtype.itemsize,
            ),
            instances=tuple(instance.name for instance in config.workers.instances),
            state_pages=kv.state_pages,
            place=self._place,
        )

    def _load_weights(self, model_dir: Path, name: str, undo: ExitStack) -> None:
        weights = load_weights(model_dir, name, self._torch_dtype, self._place)
        undo.callback(weights.unlink)
        undo.callback(weights.close)

    def _free_shared(self) -> None:
        self.shared.unlink()


def _pool(option: str, mib: int, page_bytes: int) -> PoolSize:
    pages = mib * MIB // page_bytes
    if pages == 0:
        raise ConfigError(f"{option}={mib} is too small: one page of this model takes {page_bytes} bytes")
    return PoolSize(pages, page_bytes)
