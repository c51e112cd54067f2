"""Ranks of a tiny model as threads of one process."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from model_loop import Loop
from torch import Tensor

from ipc_buffers import Collective, MessageQueue
from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, Meeting
from unifiedserve.engine.weight_source import weight_source
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.memory.number_types import name_of
from unifiedserve.memory.weights import attach_weights, store_weights
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.adapters import load_adapter
from unifiedserve.models.registry import load_config
from unifiedserve.placement import Network
from unifiedserve.placement.encoder_ranks import FIRST_ALONE, EncoderRanks
from unifiedserve.ranks.follower import follow
from unifiedserve.ranks.group import Group
from unifiedserve.ranks.messages import Leave
from unifiedserve.ranks.parts import RankPart, parts_of

SECONDS = 20.0


def weights_of(checkpoint: Path, dtype: torch.dtype, part: RankPart, quantization: str) -> dict[str, Tensor]:
    """Return what a rank has of the weights."""
    tensors = weight_source(
        EngineConfig.of(quantization=quantization),
        checkpoint,
        load_config(checkpoint),
        CPU,
        name_of(dtype),
        part,
    )
    memory = store_weights(tensors, f"test-ranks-{uuid.uuid4().hex[:12]}", dtype, CPU.place)
    try:
        return attach_weights(memory.name)
    finally:
        memory.unlink()


@contextmanager
def ranks_of(
    checkpoint: Path,
    ranks: int,
    dtype: torch.dtype = torch.float32,
    quantization: str = "none",
    kv_dtype: torch.dtype | None = None,
    encoder: EncoderRanks = FIRST_ALONE,
) -> Iterator[Loop]:
    """Yield a loop over rank 0, with whose pages threads work as the other ranks."""
    config, name = load_config(checkpoint), f"test-ranks-{uuid.uuid4().hex[:12]}"
    with ExitStack() as stack:
        arena = Collective.create(name, ranks)
        stack.callback(arena.unlink)
        inboxes = [MessageQueue.create(f"{name}-{rank}", 1 << 20) for rank in range(1, ranks)]
        for inbox in inboxes:
            stack.callback(inbox.unlink)
        parts = parts_of(config, ranks, encoder)
        shared: list[Collective | None] = [None] * ranks
        if encoder.tensor > 1:
            for group in range(encoder.data):
                stack.callback(Collective.create(f"{name}-e{group}", encoder.tensor).unlink)
            shared = [
                Collective.join(f"{name}-e{rank // encoder.tensor}", rank % encoder.tensor) for rank in range(ranks)
            ]
        meetings = [
            Meeting(part.rank, ranks, Collective.join(name, part.rank), shared[part.rank], encoder.tensor, SECONDS)
            for part in parts
        ]
        groups = [
            Group(part, meeting.collective, CPU.exchanges(meeting), inboxes, SECONDS)
            for part, meeting in zip(parts, meetings, strict=True)
        ]
        weights = [weights_of(checkpoint, dtype, part, quantization) for part in parts]
        adapters = [
            load_adapter(checkpoint, weights[rank % encoder.tensor] | weights[rank], dtype, CPU, tuple(Network), group)
            if encoder.total > 1 or group.leads
            else load_adapter(checkpoint, weights[rank], dtype, CPU, (Network.LANGUAGE,), group)
            for rank, group in enumerate(groups)
        ]
        layout = KVLayout.of(config, 16, name_of(kv_dtype or dtype), ranks)
        loop = Loop(adapters[0], layout=layout)
        stack.callback(loop.close)
        threads = stack.enter_context(ThreadPoolExecutor(max(1, ranks - 1)))
        following = [
            threads.submit(_follow, adapter, KVCache(loop.pool, layout, part=rank))
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
    follow(adapter.part, kv, adapter.encoder_part)
