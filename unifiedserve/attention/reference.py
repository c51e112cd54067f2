"""Attend over pages in plain torch. The others must equal it; it takes the types and masks that they lack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from unifiedserve.attention.base import PLAIN, AttentionRules, SequenceView

if TYPE_CHECKING:
    from torch import Tensor


def attend(
    q: Tensor,
    out: Tensor,
    keys: Tensor,
    values: Tensor,
    sequences: Sequence[SequenceView],
    scale: float,
    rules: AttentionRules = PLAIN,
) -> None:
    """Attend within each sequence, over a layer's [num_pages, page_size, kv_heads, head_dim].

    q and out: [T, q_heads, head_dim], of which the sequences' rows are read and written. A token sees the keys before
    its limit (see RaggedBatch), of which a window leaves those less than so many positions before it.
    """
    for sequence in sequences:
        rows = slice(sequence.first, sequence.last)
        past = sequence.kv_len - (sequence.last - sequence.first)
        first = _first_seen(past, rules)
        k, v = (_gather(cache, sequence, first) for cache in (keys, values))
        mask = _mask(sequence, first, rules, q.device)
        attended = _attend_by_scores if rules.has_own_softmax else _attend
        out[rows] = attended(q[rows], k, v, scale, mask, rules)


def _first_seen(position: int, rules: AttentionRules) -> int:
    by_window = 0 if rules.window is None else position - rules.window + 1
    by_chunk = 0 if rules.chunk is None else position // rules.chunk * rules.chunk
    return max(0, by_window, by_chunk)


def _gather(cache: Tensor, sequence: SequenceView, first: int) -> Tensor:
    """Gather a sequence's rows of the cache from `first` on, in order: [kv_heads, kv_len - first, head_dim]."""
    page_size = cache.shape[1]
    skipped = first // page_size
    rows = cache[sequence.pages[skipped:].to(cache.device)].flatten(0, 1)
    return rows[first - skipped * page_size : sequence.kv_len - skipped * page_size].transpose(0, 1)


def _mask(sequence: SequenceView, first: int, rules: AttentionRules, device: torch.device) -> Tensor | None:
    """Return which keys from `first` on the new tokens see: bool [n, m]; None: each sees those up to its own."""
    n = sequence.last - sequence.first
    keys = torch.arange(first, sequence.kv_len, device=device)
    if sequence.limits is None and (n == 1 or _first_seen(sequence.kv_len - 1, rules) <= first):
        return None
    positions = keys[len(keys) - n :, None]
    seen = keys < (positions + 1 if sequence.limits is None else sequence.limits.to(device)[:, None])
    if rules.window is not None:
        seen &= keys > positions - rules.window
    return seen if rules.chunk is None else seen & (keys >= positions // rules.chunk * rules.chunk)


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None, rules: AttentionRules) -> Tensor:
    """Attend from the last n of m positions to all of them.

    q is [n, q_heads, d], k and v are [kv_heads, m, d]; returns [n, q_heads, d]. Heads that share a key/value head go
    along a broadcast dimension, so that nothing is repeated in memory.
    """
    n, m = len(q), k.shape[1]
    groups = q.shape[1] // len(k)
    if mask is None and 1 < n < m:
        mask = _causal(n, m, q.device)
    out = torch.nn.functional.scaled_dot_product_attention(
        _grouped(q, groups),
        k.unsqueeze(1).expand(-1, groups, -1, -1),
        v.unsqueeze(1).expand(-1, groups, -1, -1),
        attn_mask=mask,
        is_causal=mask is None and n > 1,
        scale=scale,
    )
    return out.permute(2, 0, 1, 3).reshape(q.shape)


def _attend_by_scores(
    q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None, rules: AttentionRules
) -> Tensor:
    """Do the same with capped scores and sinks; scores are float32 at least."""
    n, groups = len(q), q.shape[1] // len(k)
    dtype = torch.promote_types(q.dtype, torch.float32)
    scores = _grouped(q, groups).to(dtype) @ k.to(dtype).mT[:, None] * scale
    if rules.cap is not None:
        scores = torch.tanh(scores / rules.cap) * rules.cap
    scores = scores.masked_fill(~(_causal(n, k.shape[1], q.device) if mask is None else mask), -torch.inf)
    if rules.sinks is not None:
        sinks = rules.sinks.to(dtype).view(len(k), groups, 1, 1).expand(-1, -1, n, -1)
        scores = torch.cat([scores, sinks], dim=-1)
    weights = scores.softmax(-1)[..., : k.shape[1]]
    return (weights @ v.to(dtype)[:, None]).permute(2, 0, 1, 3).reshape(q.shape).to(q.dtype)


def _grouped(q: Tensor, groups: int) -> Tensor:
    """Return q [n, q_heads, d] as [kv_heads, groups, n, d]."""
    return q.reshape(len(q), -1, groups, q.shape[2]).permute(1, 2, 0, 3)


def _causal(n: int, m: int, device: torch.device) -> Tensor:
    """Return which of m keys the last n tokens see: bool [n, m]. Each sees those up to its own."""
    return torch.ones(n, m, dtype=torch.bool, device=device).tril(m - n)
