"""Run a llama-like language model's layers on a GPU, over its modules' weights. The modules are transformers'."""

from typing import Any

import torch
from torch import Tensor

from unifiedserve.attention import PagedKV, RaggedBatch
from unifiedserve.device.base import Device, Exchange, LinearWeights
from unifiedserve.device.cuda.attention import CudaAttention, StoredAttention
from unifiedserve.device.llama import LlamaLayer, Rotary, fused
from unifiedserve.device.operators import Attention, Multiply, Pointwise


class CudaDecoder:
    """Run a text model that `fits`, as a `StepRunner`: seven launches a layer beside its four matrix products' own."""

    def __init__(
        self,
        model: Any,
        device: Device,
        attention: Attention,
        pointwise: Pointwise,
        multiply: Multiply,
        exchange: Exchange | None = None,
    ) -> None:
        """Compute with these operators; with an `exchange` over one rank's part of the weights."""
        self._device, self._attention, self._pointwise = device, attention, pointwise
        self._multiply = multiply
        self._exchange = exchange
        self._rotary = Rotary(model.rotary_emb)
        layers = (LlamaLayer.of(layer, fused) for layer in model.layers)
        self._layers = [layer if exchange is None or exchange.leads else _without_biases(layer) for layer in layers]
        self._norm: Tensor = model.norm.weight
        self._epsilon: float = model.norm.variance_epsilon
        self._scale: float = model.layers[0].self_attn.scaling
        self._hidden: int = model.config.hidden_size
        #: of queries, in each layer
        self.heads: int = model.layers[0].self_attn.q_proj.out_features // model.layers[0].self_attn.head_dim

    @property
    def divided(self) -> bool:
        """Tell whether it runs one rank's part of the layers."""
        return self._exchange is not None

    def __call__(self, embeds: Tensor, positions: Tensor, batch: RaggedBatch, kv: PagedKV) -> Tensor:
        attention = CudaAttention(batch, kv, self._device, self._attention)
        return self.run(embeds, positions, attention, kv, self._device.upload(batch.wanted_rows))

    def run(
        self, embeds: Tensor, positions: Tensor, attention: StoredAttention, kv: PagedKV, wanted: Tensor | None
    ) -> Tensor:
        """Return what a `StepRunner` does of the `wanted` rows, int64 [W] on the device; None: of all.

        Nothing in here waits for the device or depends on values, so that it can be recorded.
        """
        cosine, sine = self._rotary(positions)
        embeds, *added = torch.split(embeds, self._hidden, dim=1)
        residual, delta = embeds.to(torch.float32, copy=True, memory_format=torch.contiguous_format), None
        for index, layer in enumerate(self._layers):
            normed = self._norm_sum(residual, delta, layer.input_norm)
            attended = self._attend(index, layer, normed, cosine, sine, attention, kv)
            if wanted is not None and index == len(self._layers) - 1:  # of others only keys and values are needed
                residual, attended = residual.index_select(0, wanted), attended.index_select(0, wanted)
            delta = self._summed(self._multiply(attended, *layer.output))
            normed = self._norm_sum(residual, delta, layer.attention_norm)
            gated = self._pointwise.silu_mul(self._multiply(normed, *layer.gate_up))
            delta = self._summed(self._multiply(gated, *layer.down))
            if index < len(added):
                residual += added[index]
        return self._norm_sum(residual, delta, self._norm)

    def _attend(
        self,
        index: int,
        layer: LlamaLayer[LinearWeights],
        normed: Tensor,
        cosine: Tensor,
        sine: Tensor,
        attention: StoredAttention,
        kv: PagedKV,
    ) -> Tensor:
        """Return [T, heads * head_dim] of a layer's input [T, hidden]."""
        queries = self._pointwise.store_kv(
            self._multiply(normed, *layer.qkv),
            cosine,
            sine,
            kv.k(index),
            kv.v(index),
            attention.slots,
            layer.query_norm,
            layer.key_norm,
            self._epsilon,
        )
        return attention.attend_stored(queries, index, self._scale).flatten(1)

    def _summed(self, product: Tensor) -> Tensor:
        """Return the sum over the ranks, in place of what this one has."""
        if self._exchange:
            self._exchange.all_reduce(product)
        return product

    def _norm_sum(self, residual: Tensor, delta: Tensor | None, weight: Tensor) -> Tensor:
        return self._pointwise.add_rms_norm(residual, delta, weight, self._epsilon)


def _without_biases(layer: LlamaLayer[LinearWeights]) -> LlamaLayer[LinearWeights]:
    """Leave out biases of products that are summed over ranks: the first rank adds them."""
    return layer._replace(output=layer.output._replace(bias=None), down=layer.down._replace(bias=None))
