"""The layers of a llama-like language model in C++, over the weights of its transformers modules."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from unifiedserve import _core
from unifiedserve.attention import PagedKV, RaggedBatch
from unifiedserve.device.base import LinearWeights
from unifiedserve.device.cpu.attention import native_batch
from unifiedserve.device.cpu.processor import cpu_features, thread_pool
from unifiedserve.device.llama import LlamaLayer, Rotary

#: with matrix units (AMX), torch's products are faster than ours from so many rows on
MANY_ROWS = 64


class FusedDecoder:
    """A `StepRunner` for a text model that `fits`."""

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        config, attention = model.config, model.layers[0].self_attn
        self._dtype = dtype
        self._rotary = Rotary(model.rotary_emb)
        self._norm = model.norm.weight
        self._hidden: int = config.hidden_size
        self._layers = [LlamaLayer.of(layer) for layer in model.layers]
        self._torch_products = dtype == torch.bfloat16 and "amx_bf16" in cpu_features()
        self._shape = _core.DecoderShape(
            hidden=config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=attention.head_dim,
            intermediate=config.intermediate_size,
            epsilon=model.norm.variance_epsilon,
            scale=attention.scaling,
        )
        layers = tuple(_native(layer) for layer in self._layers)
        self._native = _core.Decoder(thread_pool(), self._shape, layers, self._norm)

    def __call__(self, embeds: Tensor, positions: Tensor, batch: RaggedBatch, kv: PagedKV) -> Tensor:
        """Run the layers. Raises ValueError if the cache has another dtype than the model."""
        if kv.pages.dtype != self._dtype:
            raise ValueError("the KV cache has another dtype than the model")
        ragged, cache = native_batch(batch), _core.KvCache(kv.pages)
        cosine, sine = self._rotary(positions)
        embeds, *added = torch.split(embeds, self._hidden, dim=1)
        embeds = embeds.contiguous()
        if added or (self._torch_products and len(embeds) >= MANY_ROWS):
            return self._run_layers(embeds, cosine, sine, batch.wanted_rows, ragged, cache, added)
        hidden = embeds.new_empty(int(batch.wanted_indptr[-1]), embeds.shape[1])
        self._native.step(embeds, cosine, sine, ragged, cache, hidden)
        return hidden

    def _run_layers(
        self,
        embeds: Tensor,
        cosine: Tensor,
        sine: Tensor,
        wanted: Tensor,
        batch: _core.Batch,
        cache: _core.KvCache,
        added: Sequence[Tensor],
    ) -> Tensor:
        """Do the same with torch's matrix products; `added` [T, hidden] are summands after the first layers."""
        native = self._native
        native.plan(batch, cache)
        residual, delta = embeds.float().clone(), None
        normed = torch.empty_like(embeds)

        def norm(weight: Tensor) -> None:
            native.norm(residual, delta, weight, normed)

        for index, layer in enumerate(self._layers):
            norm(layer.input_norm)
            qkv = linear(normed, *layer.qkv)
            if index == len(self._layers) - 1:  # of the other tokens nothing but keys and values is needed
                residual, normed = residual[wanted], normed[: len(wanted)]
            attended = embeds.new_empty(len(residual), layer.output.weight.shape[1])
            native.attend(index, qkv, cosine, sine, batch, cache, attended)
            delta = linear(attended, *layer.output)
            norm(layer.attention_norm)
            gate_up = linear(normed, *layer.gate_up)
            gated = embeds.new_empty(len(residual), layer.down.weight.shape[1])
            native.gate(gate_up, gated)
            delta = linear(gated, *layer.down)
            if index < len(added):
                residual += added[index]
        norm(self._norm)
        return normed


def _native(layer: LlamaLayer) -> _core.DecoderLayer:
    def weight(product: LinearWeights) -> _core.Weight:
        return _core.Weight(product.weight, product.bias)

    return _core.DecoderLayer(
        input_norm=layer.input_norm,
        qkv=weight(layer.qkv),
        query_norm=layer.query_norm,
        key_norm=layer.key_norm,
        output=weight(layer.output),
        attention_norm=layer.attention_norm,
        gate_up=weight(layer.gate_up),
        down=weight(layer.down),
    )
