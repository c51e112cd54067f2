"""Attention written out, as the reference for what is computed over pages."""

import torch
from torch import Tensor

from unifiedserve.attention import PLAIN, AttentionRules


def dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    limits: Tensor | None = None,
    rules: AttentionRules = PLAIN,
) -> Tensor:
    """[n, q_heads, d] over [m, kv_heads, d], in their dtype: the last n of m positions.

    They see the keys before their limits [n], or up to their own, of these those in the window and in their chunk.
    """
    n, m, repeat = len(q), len(k), q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    position, key = torch.arange(m - n, m)[:, None], torch.arange(m)[None]
    seen = (key <= position) if limits is None else (key < limits[:, None])
    seen &= key > position - (rules.window or m)
    if rules.chunk is not None:
        seen &= key // rules.chunk >= position // rules.chunk
    scores = torch.einsum("nhd,mhd->hnm", q, k) * scale
    if rules.cap is not None:
        scores = rules.cap * (scores / rules.cap).tanh()
    scores = scores.masked_fill(~seen, -torch.inf)
    total = scores.logsumexp(-1)
    if rules.sinks is not None:
        total = total.logaddexp(rules.sinks.to(total.dtype)[:, None])
    return torch.einsum("hnm,mhd->nhd", (scores - total[..., None]).exp(), v)


def some_limits(past: int, new: int, random: torch.Generator) -> Tensor:
    """What tokens see of which each is alone, or in a block with those behind it."""
    ends = torch.rand(new, generator=random) < 0.2
    ends[-1] = True
    blocks = torch.where(ends, torch.arange(new) + 1, new)
    return past + blocks.flip(0).cummin(0).values.flip(0)


DTYPES = [torch.float32, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
