"""The layers of a llama-like language model in C++, over the weights of its transformers modules.

Query, key and value projections are one matrix product, and gate and up, too: the arena holds their weights back to
back (see memory/weights.py), so that the fused matrix is a view.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from unifiedserve import _core
from unifiedserve.attention import RaggedBatch, cpu_features
from unifiedserve.attention.cpu import KERNEL_DTYPES, thread_pool
from unifiedserve.memory.kv_cache import KVCache

#: text models of transformers whose layers are exactly these
MODEL_TYPES = {"llama", "mistral", "qwen2", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3", "qwen3_vl_text"}
#: with matrix units (AMX), torch's products are faster than ours from so many rows on
MANY_ROWS = 64


class FusedLinear:
    """One matrix product for several projections of the same input; `bias` is None if they have none."""

    def __init__(self, *modules: Any) -> None:
        self.weight = back_to_back([module.weight for module in modules])
        biases = [module.bias for module in modules if module.bias is not None]
        self.bias = back_to_back(biases) if biases else None
        self.native = _core.Weight(self.weight, self.bias)

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class FusedDecoder:
    """Final hidden states of a ragged batch's wanted tokens.

    Raises ValueError if the model is of another structure (see `fits`).
    """

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        if not fits(model, dtype):
            raise ValueError(f"{type(model).__name__} in {dtype} is not a llama-like decoder")
        config, attention = model.config, model.layers[0].self_attn
        self._rotary = model.rotary_emb
        self._norm = model.norm.weight
        self._hidden: int = config.hidden_size
        self._layers = [_Layer(layer) for layer in model.layers]
        self._torch_products = dtype == torch.bfloat16 and "amx_bf16" in cpu_features()
        self._like = torch.empty(0)  # rotary embeddings take their dtype from it
        self._shape = _core.DecoderShape(
            hidden=config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=attention.head_dim,
            intermediate=config.intermediate_size,
            epsilon=model.norm.variance_epsilon,
            scale=attention.scaling,
        )
        layers = tuple(layer.native for layer in self._layers)
        self._native = _core.Decoder(thread_pool(), self._shape, layers, self._norm)

    def __call__(self, embeds: Tensor, positions: Tensor, batch: RaggedBatch, kv: KVCache) -> Tensor:
        """Return [W, hidden] of embeds [T, width] and positions [P, T]; write all tokens' keys and values to the cache.

        What `embeds` hold beyond the embedding is added after the first layers, `hidden` columns after each.
        """
        if kv.native is None:
            raise ValueError("the KV cache has another dtype than the model")
        cosine, sine = self._rotary(self._like, positions[:, None] if len(positions) > 1 else positions)
        cosine, sine = cosine[0].contiguous(), sine[0].contiguous()
        embeds, *added = torch.split(embeds, self._hidden, dim=1)
        embeds = embeds.contiguous()
        if added or (self._torch_products and len(embeds) >= MANY_ROWS):
            return self.run_layers(embeds, cosine, sine, batch, kv.native, added)
        hidden = embeds.new_empty(int(batch.wanted_indptr[-1]), embeds.shape[1])
        self._native.step(embeds, cosine, sine, batch.native, kv.native, hidden)
        return hidden

    def run_layers(
        self,
        embeds: Tensor,
        cosine: Tensor,
        sine: Tensor,
        batch: RaggedBatch,
        cache: _core.KvCache,
        added: Sequence[Tensor] = (),
    ) -> Tensor:
        """Do the same with torch's matrix products; `added` [T, hidden] are summands after the first layers."""
        native = self._native
        native.plan(batch.native, cache)
        residual, delta = embeds.float().clone(), None
        normed = torch.empty_like(embeds)

        def norm(weight: Tensor) -> None:
            native.norm(residual, delta, weight, normed)

        for index, layer in enumerate(self._layers):
            norm(layer.input_norm)
            qkv = layer.qkv(normed)
            if index == len(self._layers) - 1:  # of the other tokens nothing but keys and values is needed
                residual, normed = residual[batch.wanted_rows], normed[: len(batch.wanted_rows)]
            attended = embeds.new_empty(len(residual), layer.output.weight.shape[1])
            native.attend(index, qkv, cosine, sine, batch.native, cache, attended)
            delta = layer.output(attended)
            norm(layer.attention_norm)
            gate_up = layer.gate_up(normed)
            gated = embeds.new_empty(len(residual), layer.down.weight.shape[1])
            native.gate(gate_up, gated)
            delta = layer.down(gated)
            if index < len(added):
                residual += added[index]
        norm(self._norm)
        return normed


class _Layer:
    def __init__(self, layer: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.input_norm: Tensor = layer.input_layernorm.weight
        self.qkv = FusedLinear(attention.q_proj, attention.k_proj, attention.v_proj)
        self.output = FusedLinear(attention.o_proj)
        self.attention_norm: Tensor = layer.post_attention_layernorm.weight
        self.gate_up = FusedLinear(mlp.gate_proj, mlp.up_proj)
        self.down = FusedLinear(mlp.down_proj)
        head_norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
        query_norm, key_norm = (None if norm is None else norm.weight for norm in head_norms)
        self.native = _core.DecoderLayer(
            input_norm=self.input_norm,
            qkv=self.qkv.native,
            query_norm=query_norm,
            key_norm=key_norm,
            output=self.output.native,
            attention_norm=self.attention_norm,
            gate_up=self.gate_up.native,
            down=self.down.native,
        )


def fits(model: Any, dtype: torch.dtype) -> bool:
    """Return whether a transformers text model is a decoder of the structure and dtype that the kernels know."""
    config = model.config
    return (
        dtype in KERNEL_DTYPES
        and config.model_type in MODEL_TYPES
        and config.hidden_act == "silu"
        and not has_windows(config)
        and config.num_attention_heads % config.num_key_value_heads == 0
        and all(parameter.is_contiguous() for parameter in model.parameters())
    )


def has_windows(config: Any) -> bool:
    """Return whether some layer of a text config does not see the whole context."""
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None) or config.max_position_embeddings
    return not kinds <= {"full_attention"} if kinds else window < config.max_position_embeddings


class Head:
    """float32 logits from hidden states, by the kernels where they know the dtype."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._native = FusedLinear(module) if module.weight.dtype in KERNEL_DTYPES else None
        self._logits = torch.empty(0, len(module.weight))

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return [k, vocab] of [k, hidden], valid until the next call."""
        if self._native is None:
            scores: Tensor = self._module(hidden)
            return scores.float()
        hidden = hidden.contiguous()
        if len(self._logits) < len(hidden):  # fresh memory at every step would cost a page fault for each 4 KiB
            self._logits = torch.empty(len(hidden), len(self._native.weight))
        logits = self._logits[: len(hidden)]
        _core.linear(thread_pool(), hidden, self._native.native, logits)
        return logits


def back_to_back(tensors: Sequence[Tensor]) -> Tensor:
    """Join the tensors along dimension 0: in a view if they lie so in memory, else in a copy."""
    first = tensors[0]
    if len(tensors) == 1:
        return first
    ends = [tensor.data_ptr() + tensor.nbytes for tensor in tensors]
    storage = first.untyped_storage()
    if ends[:-1] != [tensor.data_ptr() for tensor in tensors[1:]] or ends[-1] > storage.data_ptr() + storage.nbytes():
        return torch.cat(list(tensors))
    return first.as_strided((sum(len(tensor) for tensor in tensors), *first.shape[1:]), first.stride())
