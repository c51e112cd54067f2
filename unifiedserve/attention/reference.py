"""Paged attention in plain torch: what the others must equal, and the way for types and masks that they lack."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from unifiedserve.attention.base import SequenceView


def attend(
    q: Tensor,
    out: Tensor,
    keys: Tensor,
    values: Tensor,
    sequences: Sequence[SequenceView],
    scale: float,
    window: int | None = None,
) -> None:
    """Attend within each sequence, over a layer's [num_pages, page_size, kv_heads, head_dim].

    q and out: [T, q_heads, head_dim], of which the sequences' rows are read and written. A token sees the keys before
    its limit (see RaggedBatch), of which a `window` leaves those less than so many positions before it.
    """
    for sequence in sequences:
        rows = slice(sequence.first, sequence.last)
        past = sequence.kv_len - (sequence.last - sequence.first)
        first = 0 if window is None else max(0, past - window + 1)
        k, v = (_gather(cache, sequence, first) for cache in (keys, values))
        limits = None if sequence.limits is None else sequence.limits.to(q.device) - first
        out[rows] = _attend(q[rows], k, v, scale, limits, window)


def _gather(cache: Tensor, sequence: SequenceView, first: int) -> Tensor:
    """Gather a sequence's rows of the cache from `first` on, in order: [kv_heads, kv_len - first, head_dim]."""
    page_size = cache.shape[1]
    skipped = first // page_size
    rows = cache[sequence.pages[skipped:].to(cache.device)].flatten(0, 1)
    return rows[first - skipped * page_size : sequence.kv_len - skipped * page_size].transpose(0, 1)


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float, limits: Tensor | None, window: int | None) -> Tensor:
    """Let q [n, q_heads, d], the last n of the m positions of k, v [kv_heads, m, d], attend: [n, q_heads, d].

    Heads that share a key/value head go along a broadcast dimension, so that nothing is repeated in memory.
    """
    n, q_heads, head_dim = q.shape
    kv_heads, m, _ = k.shape
    groups = q_heads // kv_heads
    grouped = q.view(n, kv_heads, groups, head_dim).permute(1, 2, 0, 3)
    causal = limits is None and (window is None or window >= m)
    out = scaled_dot_product_attention(
        grouped,
        k.unsqueeze(1).expand(-1, groups, -1, -1),
        v.unsqueeze(1).expand(-1, groups, -1, -1),
        attn_mask=None if n == 1 or (causal and n == m) else _mask(n, m, limits, window, q.device),
        is_causal=causal and n == m and n > 1,
        scale=scale,
    )
    return out.permute(2, 0, 1, 3).reshape(n, q_heads, head_dim)


def _mask(n: int, m: int, limits: Tensor | None, window: int | None, device: torch.device) -> Tensor:
    """Return which keys the last n of m positions see: bool [n, m]."""
    keys = torch.arange(m, device=device)
    positions = keys[m - n :, None]
    seen = keys < (positions + 1 if limits is None else limits[:, None])
    return seen if window is None else seen & (keys > positions - window)
