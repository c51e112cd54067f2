"""A checkpoint's model in this process, over weights as a daemon on the processor stores them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU
from unifiedserve.engine.weight_source import weight_source
from unifiedserve.memory.weights import attach_weights, store_weights, weights_bytes
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.adapters import load_adapter
from unifiedserve.models.registry import load_config


class Loaded(NamedTuple):
    adapter: LanguageAdapter
    weights_bytes: int


@contextmanager
def loaded(model_dir: Path, config: EngineConfig) -> Iterator[Loaded]:
    """Yield the model of a config that names its dtype."""
    dtype: torch.dtype = getattr(torch, config.checkpoint.dtype)
    tensors = weight_source(config, model_dir, load_config(model_dir), CPU, config.checkpoint.dtype)
    checkpoint = config.checkpoint
    kind = f"{checkpoint.dtype}-{checkpoint.quantization}-{checkpoint.vision_quantization}"
    name = f"bench-weights-{os.getpid()}-{kind}"
    memory = store_weights(tensors, name, dtype, CPU.place)
    try:
        yield Loaded(load_adapter(model_dir, attach_weights(name), dtype), weights_bytes(tensors, dtype))
    finally:
        memory.unlink()
