"""Steps of a language model's layers, of the sizes of Qwen2.5-1.5B, two of them, to time what the kernels take."""

from __future__ import annotations

import os
import time

import torch

from ipc_buffers import PagePool
from unifiedserve.attention import RaggedBatch
from unifiedserve.attention.base import Span
from unifiedserve.device.cpu.decoder import FusedDecoder
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.memory.number_types import name_of
from unifiedserve.models.hub import load_transformers

SIZES = {
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 16,
}
PAGE_TOKENS = 16
DTYPE = torch.bfloat16


class DecoderSteps:
    """A batch of `rows` sequences of `past` tokens, each of which gets `new` ones a step."""

    def __init__(self) -> None:
        transformers = load_transformers()
        torch.manual_seed(0)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(transformers.Qwen2Config(**SIZES), dtype=DTYPE)
        model.to_empty(device="cpu")
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.02)
        model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
        self._config = model.config
        self._decoder = FusedDecoder(model.model.requires_grad_(False), DTYPE)

    @torch.inference_mode()
    def seconds(self, rows: int, past: int, new: int, times: int) -> list[float]:
        """Return what each of so many steps took, after one that is not counted."""
        layout = KVLayout.of(self._config, PAGE_TOKENS, name_of(DTYPE))
        pages = -(-(past + new) // PAGE_TOKENS)
        pool = PagePool.create(f"bench-steps-{os.getpid()}", rows * pages, layout.page_bytes)
        try:
            kv = KVCache(pool, layout)
            for layer in range(layout.shape[0]):
                kv.k(layer).normal_()
                kv.v(layer).normal_()
            tables = torch.randperm(rows * pages).view(rows, pages).tolist()
            batch = RaggedBatch.build([Span(table, past, past + new, 1) for table in tables], PAGE_TOKENS)
            embeds = torch.randn(rows * new, SIZES["hidden_size"]).to(DTYPE)
            positions = torch.arange(past, past + new).repeat(rows)[None]
            return [self._timed(embeds, positions, batch, kv) for _ in range(times + 1)][1:]
        finally:
            pool.close()
            pool.unlink()

    def _timed(self, embeds: torch.Tensor, positions: torch.Tensor, batch: RaggedBatch, kv: KVCache) -> float:
        start = time.perf_counter()
        self._decoder(embeds, positions, batch, kv)
        return time.perf_counter() - start
