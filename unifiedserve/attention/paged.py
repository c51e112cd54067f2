"""Paged attention: the kernels where they know the type and no token sees later ones, plain torch else."""

import torch
from torch import Tensor

from unifiedserve import _core
from unifiedserve.attention import reference
from unifiedserve.attention.base import PagedKV, RaggedBatch
from unifiedserve.attention.cpu import thread_pool


def paged_attention(
    q: Tensor,
    k_new: Tensor,
    v_new: Tensor,
    layer: int,
    kv: PagedKV,
    batch: RaggedBatch,
    scale: float,
    window: int | None = None,
) -> Tensor:
    """Write the new keys and values into their slots, then attend within each sequence.

    q: [T, q_heads, head_dim]; k_new, v_new: [T, kv_heads, head_dim]; returns [T, q_heads, head_dim]. A token sees the
    keys before its limit (see RaggedBatch), of which a `window` leaves those less than so many positions before it.
    """
    keys, values = kv.k(layer), kv.v(layer)
    page, offset = batch.slots // kv.page_size, batch.slots % kv.page_size
    keys[page, offset] = k_new
    values[page, offset] = v_new
    q = q.contiguous()
    out = torch.empty_like(q)
    sequences = batch.sequences
    if kv.native is not None and q.dtype == keys.dtype:
        _core.attend(thread_pool(), layer, batch.native, kv.native, q, out, scale, window)
        sequences = [sequence for sequence in sequences if sequence.limits is not None]
    reference.attend(q, out, keys, values, sequences, scale, window)
    return out
