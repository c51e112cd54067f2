"""Attention of the vision tower: every patch of a sequence sees all others of it.

Many sequences of equal length go through batched matrix products together. torch's own kernel for attention on CPUs
takes two to three times as long.
"""

import torch
from torch import Tensor

from unifiedserve.models.qwen2_5_vl.vision_layout import Layout

ROWS = 1024  # patches at once, whose queries and keys stay in the cache
SCORES = 1 << 21  # scores at once: they stay there, too, and a large image has more than fit into memory


def attend(qkv: Tensor, layout: Layout) -> Tensor:
    """[N, heads * head_dim] of [N, 3, heads, head_dim], queries and keys not yet rotated."""
    out = torch.empty_like(qkv[:, 0])
    for start, sequences, length in layout.groups:
        step = max(1, ROWS // length) * length
        for row in range(start, start + sequences * length, step):
            rows = slice(row, min(row + step, start + sequences * length))
            heads = qkv[rows].view(-1, length, *qkv.shape[1:]).permute(2, 0, 3, 1, 4)
            angles = (values[rows].view(-1, 1, length, values.shape[-1]) for values in (layout.cos, layout.sin))
            query, key = _rotated(heads[:2], *angles).flatten(1, 2)
            attended = _attention(query, key, heads[2].flatten(0, 1)).view(heads.shape[1:])
            out[rows].view(-1, length, *out.shape[1:]).copy_(attended.transpose(1, 2))
    return out.view(len(out), -1)


def _rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries and keys [2, sequences, heads, n, head_dim], rotated in float32.

    `cos` and `sin` are [sequences, 1, n, head_dim / 2].
    """
    turned = torch.empty(heads.shape).copy_(heads)
    first, second = turned.chunk(2, -1)
    moved = first * sin
    first.mul_(cos).addcmul_(second, sin, value=-1)
    second.mul_(cos).add_(moved)
    return turned.to(heads.dtype)


def _attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """[batch, n, head_dim] of three such."""
    batch, n, head_dim = query.shape
    scale, unused = head_dim**-0.5, query.new_empty(1)
    out = torch.empty_like(query)
    step, queries = max(1, SCORES // n**2), max(1, SCORES // n)
    for b in range(0, batch, step):
        keys, values = key[b : b + step].transpose(1, 2), value[b : b + step]
        for q in range(0, n, queries):
            part = slice(b, b + step), slice(q, q + queries)
            scores = torch.baddbmm(unused, query[part], keys, beta=0, alpha=scale)
            out[part] = torch.bmm(scores.softmax(-1), values)
    return out
