"""Attend over rows of keys and values that lie anywhere in a buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from unifiedserve.attention.base import CrossSpan

if TYPE_CHECKING:
    from torch import Tensor


def cross_attention(q: Tensor, keys: Tensor, values: Tensor, spans: Sequence[CrossSpan], scale: float) -> Tensor:
    """Let every token of a span attend to all of the span's rows.

    q: [S, q_heads, head_dim], the spans' tokens back to back; keys, values: [rows, kv_heads, head_dim], strided;
    returns [S, q_heads, head_dim].
    """
    parts = torch.split(q, [span.last - span.first for span in spans])
    return torch.cat([_attend(part, keys, values, span.rows, scale) for part, span in zip(parts, spans, strict=True)])


def _attend(q: Tensor, keys: Tensor, values: Tensor, rows: Tensor, scale: float) -> Tensor:
    """Attend without a mask. Heads that share a key/value head are more queries of it."""
    n, q_heads, head_dim = q.shape
    kv_heads = keys.shape[1]
    rows = rows.to(keys.device)
    k, v = (cache[rows].transpose(0, 1)[None] for cache in (keys, values))
    queries = q.view(n, kv_heads, -1, head_dim).transpose(0, 1).reshape(1, kv_heads, -1, head_dim)
    out = torch.nn.functional.scaled_dot_product_attention(queries, k, v, scale=scale)
    return out.view(kv_heads, n, -1, head_dim).transpose(0, 1).reshape(n, q_heads, head_dim)
