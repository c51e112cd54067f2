"""Apply what some layers do by the positions of their tokens.

They see only chunks of a sequence, and make queries larger. A ragged batch has tokens of several sequences, which
modules of transformers cannot count: so it is done here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from unifiedserve.attention import RaggedBatch

if TYPE_CHECKING:
    from torch import Tensor

CHUNKED_ATTENTION = "chunked_attention"


def mark_layers(language_model: Any) -> None:
    """Note in each attention what it does by positions. Its module is kept from doing the same.

    It is `attention_chunk`, of how many positions a chunk is, and `tuned_queries`, whether queries depend on them.
    """
    config = language_model.config
    kinds = getattr(config, "layer_types", None) or ()
    for number, layer in enumerate(language_model.layers):
        attention: Any = getattr(layer, "self_attn", None)
        if number < len(kinds) and kinds[number] == CHUNKED_ATTENTION:
            attention.attention_chunk = config.attention_chunk_size
        if getattr(attention, "attn_temperature_tuning", False) and not attention.use_rope:
            attention.attn_temperature_tuning, attention.tuned_queries = False, True


def tune_queries(module: Any, query: Tensor, batch: RaggedBatch) -> Tensor:
    """Return query [1, heads, T, head_dim], made larger as Llama 4 does.

    It grows with the tokens' distance from the start.
    """
    numbers = batch.positions.to(query.device).float() + 1.0
    factors = torch.log1p(torch.floor(numbers / module.floor_scale)) * module.attn_scale + 1.0
    tuned: Tensor = query * factors[:, None]
    return tuned.to(query.dtype)
