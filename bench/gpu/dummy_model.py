"""A model of made-up weights in this process, with all that a worker computes with."""

import uuid
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

import torch

from ipc_buffers import PagePool
from unifiedserve.config import EngineConfig
from unifiedserve.device import Device
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.memory.number_types import name_of
from unifiedserve.memory.weights import attach_weights, store_weights
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.adapters import load_adapter
from unifiedserve.models.dummy import DummyTensors
from unifiedserve.models.registry import load_config
from unifiedserve.worker.language.model import LanguageModel, Rows

DTYPE = torch.bfloat16
SHARE = 0.8  # of a device's free memory that the KV cache may take


def load(folder: Path, device: Device) -> LanguageAdapter:
    """Return the adapter of a model folder; its weights are in shared memory at the device's place."""
    name = _name()
    memory = store_weights(DummyTensors(load_config(folder), DTYPE), name, DTYPE, device.place)
    try:
        return load_adapter(folder, attach_weights(name, device), DTYPE, device)
    finally:
        memory.unlink()


def make_cache(adapter: LanguageAdapter, pages: int) -> KVCache:
    """Return a KV cache of random numbers: of so many pages, or of as many as there is memory for."""
    layout = KVLayout.of(adapter.config, EngineConfig().memory.kv_page_tokens, name_of(DTYPE))
    if (room := adapter.device.room()) is not None:
        pages = min(pages, int(SHARE * room.free) // layout.page_bytes)
    pool = PagePool.create(_name(), pages, layout.page_bytes, adapter.device.place)
    try:
        cache = KVCache(pool, layout, device=adapter.device)
    finally:
        pool.unlink()
    cache.pages.normal_()
    return cache


def make_batch(model: LanguageModel, sequences: int, start: int, count: int) -> list[Rows]:
    """Return `count` new tokens after `start` of each sequence; their pages are scattered.

    Sequences share pages where there are too few.
    """
    pages: Sequence[int] = torch.randperm(model.kv.pool.num_pages).tolist()
    free = cycle(pages)
    positions = torch.arange(start, start + count).expand(model.adapter.position_rows, -1)
    needed = model.kv.pages_for(start + count)
    return [Rows([0] * count, positions, start, list(islice(free, needed))) for _ in range(sequences)]


def weight_bytes(adapter: LanguageAdapter) -> tuple[int, int]:
    """Return the bytes that a step reads of the language model's layers and of its head.

    Of the embedding it reads but rows.
    """
    embedding = adapter.language_model.get_input_embeddings().weight
    layers = sum(weight.nbytes for weight in adapter.language_model.parameters() if weight is not embedding)
    return layers, adapter.model.get_output_embeddings().weight.nbytes


def _name() -> str:
    return f"gpu-bench-{uuid.uuid4().hex[:12]}"
