"""Describe llama-like text models of transformers. Devices run their layers themselves, over their weights.

Query, key and value projections are one matrix product, and gate and up, too: weights lie back to back in shared memory
(see memory/weights.py), so that the fused matrix is a view.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import torch

from unifiedserve.device.adjacent import back_to_back
from unifiedserve.device.base import LinearWeights

if TYPE_CHECKING:
    from torch import Tensor

#: text models of transformers whose layers are exactly these
MODEL_TYPES = {"llama", "mistral", "qwen2", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3", "qwen3_vl_text"}


Product = TypeVar("Product")


class LlamaLayer(NamedTuple, Generic[Product]):
    """Hold the weights of a layer, those of matrix products as the device has them.

    query_norm and key_norm [head_dim] are None where heads are not normalised.
    """

    input_norm: Tensor
    qkv: Product
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Product
    attention_norm: Tensor
    gate_up: Product
    down: Product

    @classmethod
    def of(cls, layer: Any, fused: Callable[..., Product]) -> LlamaLayer[Product]:
        """Return the weights of a layer of transformers; `fused` makes one product of several linear layers."""
        attention, mlp = layer.self_attn, layer.mlp
        head_norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
        query_norm, key_norm = (None if norm is None else norm.weight for norm in head_norms)
        return LlamaLayer(
            input_norm=layer.input_layernorm.weight,
            qkv=fused(attention.q_proj, attention.k_proj, attention.v_proj),
            query_norm=query_norm,
            key_norm=key_norm,
            output=fused(attention.o_proj),
            attention_norm=layer.post_attention_layernorm.weight,
            gate_up=fused(mlp.gate_proj, mlp.up_proj),
            down=fused(mlp.down_proj),
        )


class Rotary:
    """Compute a text model's rotary embedding, in float32 whatever the model's dtype."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._like = torch.empty(0, device=next(module.buffers()).device)  # the module takes its result's dtype from it

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines [T, rotary_dim] of positions int64 [P, T]."""
        cosine, sine = self._module(self._like, positions[:, None] if len(positions) > 1 else positions)
        return cosine[0].contiguous(), sine[0].contiguous()


def fits(model: Any, dtype: torch.dtype, dtypes: Collection[torch.dtype]) -> bool:
    """Return whether a text model of transformers has these layers, in one of the `dtypes`."""
    known = dtype in dtypes and is_llama_like(model.config)
    return known and all(parameter.is_contiguous() for parameter in model.parameters())


def is_llama_like(config: Any) -> bool:
    """Return whether the model of a text config has these layers."""
    return (
        config.model_type in MODEL_TYPES
        and config.hidden_act == "silu"
        and not has_windows(config)
        and config.num_attention_heads % config.num_key_value_heads == 0
    )


def has_windows(config: Any) -> bool:
    """Return whether some layer of a text config does not see the whole context."""
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None) or config.max_position_embeddings
    return not kinds <= {"full_attention"} if kinds else window < config.max_position_embeddings


def fused(*modules: Any) -> LinearWeights:
    """Return one matrix product for several projections of the same input; its bias is None if they have none."""
    biases = [module.bias for module in modules if module.bias is not None]
    return LinearWeights(back_to_back([module.weight for module in modules]), back_to_back(biases) if biases else None)
