"""Make an engine's weights from the checkpoint. A start that finds kept ones needs none of this."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch

from ipc_buffers import Memory
from unifiedserve.config import EngineConfig
from unifiedserve.device import Device
from unifiedserve.engine.weight_source import sources_of_ranks, wanted_by
from unifiedserve.memory.memory_plan import MemoryPlan
from unifiedserve.memory.weights import plan_memory, write_weights
from unifiedserve.placement import Network


class WeightMaker:
    """Read each rank's tensors from the checkpoint, in the form in which they are stored."""

    def __init__(self, config: EngineConfig, model_dir: Path, model_config: Any, device: Device, dtype: str) -> None:
        """Open the files. Raises ConfigError as `weight_source` does."""
        self._model_config = model_config
        self._dtype: torch.dtype = getattr(torch, dtype)
        self._sources = sources_of_ranks(config, model_dir, model_config, device, dtype)

    def plan(self, name: str, place: str, rank: int, networks: Collection[Network]) -> MemoryPlan:
        """Return what memory a rank's weights of these networks need, by headers alone."""
        wanted = wanted_by(networks, self._model_config)
        return plan_memory(self._sources[rank], name, self._dtype, place, wanted)

    def write(self, memories_of_ranks: Sequence[Sequence[Memory]]) -> None:
        """Write each rank's weights to its memories, as planned. Raises ConfigError if a file cannot be read."""
        for memories, source in zip(memories_of_ranks, self._sources, strict=True):
            if memories:
                write_weights(memories, source)
