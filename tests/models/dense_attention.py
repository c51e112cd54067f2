"""Attention written out, as the reference for what is computed over pages."""

import torch
from torch import Tensor

from unifiedserve.attention import PLAIN, Scoring


def dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    limits: Tensor | None = None,
    window: int | None = None,
    scoring: Scoring = PLAIN,
) -> Tensor:
    """[n, q_heads, d] over [m, kv_heads, d], in their dtype: the last n of m positions.

    They see the keys before their limits [n], or up to their own, of these the last `window`, and those of their chunk.
    """
    n, m, repeat = len(q), len(k), q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    position, key = torch.arange(m - n, m)[:, None], torch.arange(m)[None]
    seen = (key <= position) if limits is None else (key < limits[:, None])
    seen &= key > position - (window or m)
    if scoring.chunk is not None:
        seen &= key // scoring.chunk >= position // scoring.chunk
    scores = torch.einsum("nhd,mhd->hnm", q, k) * scale
    if scoring.cap is not None:
        scores = scoring.cap * (scores / scoring.cap).tanh()
    scores = scores.masked_fill(~seen, -torch.inf)
    total = scores.logsumexp(-1)
    if scoring.sinks is not None:
        total = total.logaddexp(scoring.sinks.to(total.dtype)[:, None])
    return torch.einsum("hnm,mhd->nhd", (scores - total[..., None]).exp(), v)
