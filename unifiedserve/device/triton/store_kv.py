"""Rotate, normalise queries and keys, and store into the KV cache, in one launch."""

from functools import cache

import triton
import triton.language as tl
from torch import Tensor

from unifiedserve.device.triton.launcher import Launcher

#: heads of a program: decode has a program for every few heads of a token, and prefill not one for every single head
BLOCK_HEADS = 4


def store_kv(
    qkv: Tensor,
    cosine: Tensor,
    sine: Tensor,
    keys: Tensor,
    values: Tensor,
    slots: Tensor,
    query_norm: Tensor | None = None,
    key_norm: Tensor | None = None,
    epsilon: float = 0.0,
) -> Tensor:
    """Write a layer's new keys and values into their slots, and return the queries.

    qkv: [T, (q_heads + 2 * kv_heads) * head_dim], contiguous, the product of the fused projections; cosine, sine:
    [T, rotary_dim], contiguous, for pairs half of rotary_dim apart (transformers' rotate_half); other dimensions stay.
    keys, values: [num_pages, page_size, kv_heads, head_dim], strided; slots: int64 [T], page * page_size + offset, or
    below 0 for a token that is stored nowhere.
    query_norm, key_norm: [head_dim], weights of an RMSNorm with `epsilon` over each head before the rotation; both or
    none. Returns [T, q_heads, head_dim] of qkv's dtype. All is computed in float32 and rounded once. Raises ValueError
    if shapes or strides are others.
    """
    shape, strides = keys.shape, keys.stride()
    _, page_size, kv_heads, head_dim = shape
    (rows, columns), (rotations, rotary_dim) = qkv.shape, cosine.shape
    q_heads = columns // head_dim - 2 * kv_heads
    if q_heads < 1 or columns % head_dim or rotary_dim > head_dim or rotary_dim % 2 or cosine.shape != sine.shape:
        raise ValueError(
            f"a product {(rows, columns)} with rotations {(rotations, rotary_dim)} and {tuple(sine.shape)} does not "
            f"fit {kv_heads} heads of {head_dim}"
        )
    if not (qkv.is_contiguous() and cosine.is_contiguous() and sine.is_contiguous() and slots.is_contiguous()):
        raise ValueError("the product, rotations and slots must be contiguous")
    if shape != values.shape or strides != values.stride() or strides[3] != 1:
        raise ValueError("keys and values must have one shape and stride, which is 1 in a head")
    if not rows == rotations == len(slots):
        raise ValueError(f"{rows} tokens, {rotations} rotations and {len(slots)} slots do not fit")
    if (query_norm is None) != (key_norm is None):
        raise ValueError("queries and keys are normalised both or not at all")
    q = qkv.new_empty(rows, q_heads, head_dim)
    if rows:
        grid = rows, -(-(q_heads + 2 * kv_heads) // BLOCK_HEADS)
        tensors = qkv, cosine, sine, query_norm, key_norm, q, keys, values, slots
        _launcher(page_size, q_heads, kv_heads, head_dim, rotary_dim)(grid, tensors, (epsilon, *strides[:3]))
    return q


@cache
def _launcher(page_size: int, q_heads: int, kv_heads: int, head_dim: int, rotary_dim: int) -> Launcher:
    constants = {
        "PAGE_SIZE": page_size,
        "Q_HEADS": q_heads,
        "KV_HEADS": kv_heads,
        "HEAD_DIM": head_dim,
        "ROTARY_DIM": rotary_dim,
        "BLOCK_HEADS": BLOCK_HEADS,
        "BLOCK_DIM": triton.next_power_of_2(head_dim),
    }
    return Launcher(_store_kv, constants, num_warps=2)


@triton.jit
def _store_kv(
    qkv,
    cosine,
    sine,
    query_norm,
    key_norm,
    q,
    keys,
    values,
    slots,
    epsilon,
    page_stride,
    token_stride,
    head_stride,
    PAGE_SIZE: tl.constexpr,
    Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
):
    """Take some heads of one token, be they queries, keys or values."""
    row = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
    dims = tl.arange(0, BLOCK_DIM)
    in_head = (dims < HEAD_DIM)[None, :]
    is_query = (heads < Q_HEADS)[:, None]
    is_value = (heads >= Q_HEADS + KV_HEADS)[:, None]
    used = (heads < Q_HEADS + 2 * KV_HEADS)[:, None] & in_head

    rotated = dims < ROTARY_DIM
    is_first = dims < ROTARY_DIM // 2
    partners = tl.where(rotated, tl.where(is_first, dims + ROTARY_DIM // 2, dims - ROTARY_DIM // 2), dims)
    product = qkv + row * ((Q_HEADS + 2 * KV_HEADS) * HEAD_DIM) + heads[:, None] * HEAD_DIM
    x = tl.load(product + dims[None, :], mask=used, other=0.0).to(tl.float32)
    partner = tl.load(product + partners[None, :], mask=used, other=0.0).to(tl.float32)
    normed, normed_partner = x, partner
    if query_norm is not None:
        norm = 1.0 / tl.sqrt(tl.sum(x * x, 1) / HEAD_DIM + epsilon)[:, None]
        normed = x * norm * _weight(query_norm, key_norm, is_query, dims, in_head)
        normed_partner = partner * norm * _weight(query_norm, key_norm, is_query, partners, in_head)

    c = tl.load(cosine + row * ROTARY_DIM + dims, mask=rotated, other=1.0).to(tl.float32)[None, :]
    s = tl.load(sine + row * ROTARY_DIM + dims, mask=rotated, other=0.0).to(tl.float32)
    s = tl.where(is_first, -s, s)[None, :]
    turned = normed * c + normed_partner * s

    tl.store(
        q + (row * Q_HEADS + heads[:, None]) * HEAD_DIM + dims[None, :],
        turned.to(q.dtype.element_ty),
        mask=used & is_query,
    )
    slot = tl.load(slots + row)
    if slot >= 0:
        place = slot // PAGE_SIZE * page_stride + slot % PAGE_SIZE * token_stride + dims[None, :]
        tl.store(
            keys + place + (heads[:, None] - Q_HEADS) * head_stride,
            turned.to(keys.dtype.element_ty),
            mask=used & (heads >= Q_HEADS)[:, None] & (heads < Q_HEADS + KV_HEADS)[:, None],
        )
        tl.store(
            values + place + (heads[:, None] - Q_HEADS - KV_HEADS) * head_stride,
            x.to(values.dtype.element_ty),
            mask=used & is_value,
        )


@triton.jit
def _weight(query_norm, key_norm, is_query, dims, in_head):
    """Return each head's weights at some dimensions; the weight of values is not used."""
    for_query = tl.load(query_norm + dims[None, :], mask=in_head, other=0.0).to(tl.float32)
    for_key = tl.load(key_norm + dims[None, :], mask=in_head, other=0.0).to(tl.float32)
    return tl.where(is_query, for_query, for_key)
