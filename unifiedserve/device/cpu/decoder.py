"""Run a llama-like language model's layers in C++, over its modules' weights. The modules are transformers'."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ipc_buffers import AllReduce
from unifiedserve import _core
from unifiedserve.attention import PagedKV, RaggedBatch
from unifiedserve.device.adjacent import back_to_back
from unifiedserve.device.cpu.attention import native_batch
from unifiedserve.device.cpu.matrix import joined
from unifiedserve.device.cpu.modules import in_panels
from unifiedserve.device.cpu.processor import thread_pool
from unifiedserve.device.llama import LlamaLayer, Rotary


class FusedDecoder:
    """Run a text model that `fits`, as a `StepRunner`; with `all_reduce` for one rank's part of it."""

    def __init__(self, model: Any, dtype: torch.dtype, all_reduce: AllReduce | None = None) -> None:
        config, attention, mlp = model.config, model.layers[0].self_attn, model.layers[0].mlp
        self._dtype = dtype
        self._rotary = Rotary(model.rotary_emb)
        self._hidden: int = config.hidden_size
        shape = _core.DecoderShape(
            hidden=config.hidden_size,
            heads=attention.q_proj.out_features // attention.head_dim,
            kv_heads=attention.k_proj.out_features // attention.head_dim,
            head_dim=attention.head_dim,
            intermediate=mlp.gate_proj.out_features,
            epsilon=model.norm.variance_epsilon,
            scale=attention.scaling,
        )
        layers = tuple(
            _core.DecoderLayer(**LlamaLayer.of(layer, partial(_fused, dtype))._asdict()) for layer in model.layers
        )
        self._native = _core.Decoder(thread_pool(), shape, layers, model.norm.weight, all_reduce)

    def __call__(self, embeds: Tensor, positions: Tensor, batch: RaggedBatch, kv: PagedKV) -> Tensor:
        """Run the layers. Raises ValueError if the cache has neither the model's dtype nor codes."""
        if kv.scales is None and kv.pages.dtype != self._dtype:
            raise ValueError("the KV cache has another dtype than the model")
        cosine, sine = self._rotary(positions)
        hidden = embeds.new_empty(int(batch.wanted_indptr[-1]), self._hidden)
        cache = _core.KvCache(kv.pages, kv.scales)
        self._native.step(embeds.contiguous(), cosine, sine, native_batch(batch), cache, hidden)
        return hidden


def _fused(dtype: torch.dtype, *modules: Any) -> _core.Weight:
    """Return one matrix product for several linear layers of the same input."""
    biases = [module.bias for module in modules if module.bias is not None]
    matrix = joined([in_panels(module).matrix for module in modules], dtype)
    return matrix.native(back_to_back(biases) if biases else None)
