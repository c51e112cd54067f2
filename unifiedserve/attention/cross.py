"""Cross-attention over rows of keys and values that lie anywhere in a buffer."""

from collections.abc import Sequence

import torch
from torch import Tensor

from unifiedserve.attention.base import CrossSpan
from unifiedserve.attention.reference import attend_densely


def cross_attention(q: Tensor, keys: Tensor, values: Tensor, spans: Sequence[CrossSpan], scale: float) -> Tensor:
    """Every token of a span attends to all of the span's rows.

    q: [S, q_heads, head_dim], the spans' tokens back to back; keys, values: [rows, kv_heads, head_dim], strided;
    returns [S, q_heads, head_dim].
    """
    parts = torch.split(q, [span.last - span.first for span in spans])
    return torch.cat([_attend(part, keys, values, span.rows, scale) for part, span in zip(parts, spans, strict=True)])


def _attend(q: Tensor, keys: Tensor, values: Tensor, rows: Tensor, scale: float) -> Tensor:
    return attend_densely(q, keys[rows].transpose(0, 1), values[rows].transpose(0, 1), scale)
