"""Paged attention in plain torch: what the others must equal, and the way for types that they lack."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from unifiedserve.attention.base import PagedKV, RaggedBatch, SequenceView


def attend(q: Tensor, layer: int, kv: PagedKV, batch: RaggedBatch, scale: float) -> Tensor:
    """Causal attention within each sequence, over keys and values that are in the cache already.

    q: [T, q_heads, head_dim]; returns the same shape.
    """
    keys, values = kv.k(layer), kv.v(layer)
    out = torch.empty_like(q)
    for sequence in batch.sequences:
        rows = slice(sequence.first, sequence.last)
        out[rows] = _attend(q[rows], _gather(keys, sequence), _gather(values, sequence), scale)
    return out


def _gather(cache: Tensor, sequence: SequenceView) -> Tensor:
    """A sequence's rows of the cache, in order: [kv_heads, kv_len, head_dim]."""
    return cache[sequence.pages].flatten(0, 1)[: sequence.kv_len].transpose(0, 1)


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """q: [n, q_heads, d], the last n of the m positions of k, v: [kv_heads, m, d]; returns [n, q_heads, d].

    Heads that share a key/value head go along a broadcast dimension, so that nothing is repeated in memory.
    """
    n, q_heads, head_dim = q.shape
    kv_heads, m, _ = k.shape
    groups = q_heads // kv_heads
    grouped = q.view(n, kv_heads, groups, head_dim).permute(1, 2, 0, 3)
    mask = None if n in (1, m) else torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
    out = scaled_dot_product_attention(
        grouped,
        k.unsqueeze(1).expand(-1, groups, -1, -1),
        v.unsqueeze(1).expand(-1, groups, -1, -1),
        attn_mask=mask,
        is_causal=n == m and n > 1,
        scale=scale,
    )
    return out.permute(2, 0, 1, 3).reshape(n, q_heads, head_dim)
