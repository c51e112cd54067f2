"""Ranks of a tiny model as threads of one process."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from model_loop import Loop

from ipc_buffers import Collective, MessageQueue
from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU
from unifiedserve.engine.weight_source import weight_source
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.memory.weights import attach_weights, store_weights
from unifiedserve.models.base import LanguageAdapter
from unifiedserve.models.registry import load_adapter, load_config
from unifiedserve.placement import Network
from unifiedserve.ranks.follower import follow
from unifiedserve.ranks.group import Group
from unifiedserve.ranks.messages import Leave
from unifiedserve.ranks.parts import RankPart

SECONDS = 60.0


def load_part(checkpoint: Path, dtype: torch.dtype, group: Group, quantization: str = "none") -> LanguageAdapter:
    """Load a rank's part; the encoder is rank 0's alone."""
    config = load_config(checkpoint)
    options = EngineConfig.of(quantization=quantization)
    tensors = weight_source(options, checkpoint, config, CPU, str(dtype).removeprefix("torch."), group.part)
    networks = tuple(Network) if group.leads else (Network.LANGUAGE,)
    memory = store_weights(tensors, f"test-ranks-{uuid.uuid4().hex[:12]}", dtype, CPU.place)
    try:
        return load_adapter(checkpoint, attach_weights(memory.name), dtype, CPU, networks, group)
    finally:
        memory.unlink()


@contextmanager
def ranks_of(
    checkpoint: Path,
    ranks: int,
    dtype: torch.dtype = torch.float32,
    quantization: str = "none",
    kv_dtype: torch.dtype | None = None,
) -> Iterator[Loop]:
    """Yield a loop over rank 0, with whose pages threads work as the other ranks."""
    config, name = load_config(checkpoint), f"test-ranks-{uuid.uuid4().hex[:12]}"
    with ExitStack() as stack:
        arena = Collective.create(name, ranks)
        stack.callback(arena.unlink)
        inboxes = [MessageQueue.create(f"{name}-{rank}", 1 << 20) for rank in range(1, ranks)]
        for inbox in inboxes:
            stack.callback(inbox.unlink)
        groups = [
            Group(RankPart(config.get_text_config(), rank, ranks), Collective.join(name, rank), inboxes, SECONDS)
            for rank in range(ranks)
        ]
        adapters = [load_part(checkpoint, dtype, group, quantization) for group in groups]
        layout = KVLayout.of(config, 16, kv_dtype or dtype, ranks)
        loop = Loop(adapters[0], layout=layout)
        stack.callback(loop.close)
        threads = stack.enter_context(ThreadPoolExecutor(max(1, ranks - 1)))
        following = [
            threads.submit(_follow, adapter, KVCache(loop.pool, layout, rank=rank))
            for rank, adapter in enumerate(adapters)
            if rank
        ]
        try:
            yield loop
        finally:
            groups[0].tell(Leave())
        for done in following:
            done.result(SECONDS)


def _follow(adapter: LanguageAdapter, kv: KVCache) -> None:
    torch.set_num_threads(1)
    assert adapter.part is not None
    follow(adapter.part, kv)
