"""Rotate heads by their rotary embedding in place, in one launch."""

from functools import cache

import triton
import triton.language as tl
from torch import Tensor

from unifiedserve.device.triton.launcher import Launcher

#: heads of a program: with heads of 64 to 128 a thread turns 4 pairs
BLOCK_HEADS = 8


def rotate_heads(heads: Tensor, cosine: Tensor, sine: Tensor) -> None:
    """Rotate heads in place, each by its row's angles; pairs are half a head apart (transformers' rotate_half).

    heads: [T, heads, head_dim], whose rows may lie apart; cosine, sine: float32 [T, head_dim / 2], contiguous. All is
    computed in float32 and rounded once. Raises ValueError if shapes or strides are others.
    """
    rows, count, head_dim = heads.shape
    row_stride, *strides = heads.stride()
    if head_dim % 2 or not cosine.shape == sine.shape == (rows, head_dim // 2):
        raise ValueError(f"rotations {tuple(cosine.shape)} and {tuple(sine.shape)} do not fit {tuple(heads.shape)}")
    if strides != [head_dim, 1] or not (cosine.is_contiguous() and sine.is_contiguous()):
        raise ValueError("rotations and each row of heads must be contiguous")
    if rows:
        _launcher(count, head_dim // 2)((rows, -(-count // BLOCK_HEADS)), (heads, cosine, sine), (row_stride,))


@cache
def _launcher(heads: int, half: int) -> Launcher:
    constants = {"HEADS": heads, "HALF": half, "BLOCK_HEADS": BLOCK_HEADS, "BLOCK_HALF": triton.next_power_of_2(half)}
    return Launcher(_rotate_heads, constants, num_warps=4)


@triton.jit
def _rotate_heads(
    heads,
    cosine,
    sine,
    row_stride,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
):
    """Take some heads of one row, both parts of each pair. Nobody else reads what is overwritten then."""
    row = tl.program_id(0).to(tl.int64)
    numbers = tl.program_id(1) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
    dims = tl.arange(0, BLOCK_HALF)
    used = (numbers < HEADS)[:, None] & (dims < HALF)[None, :]
    c = tl.load(cosine + row * HALF + dims, mask=dims < HALF, other=0.0)[None, :]
    s = tl.load(sine + row * HALF + dims, mask=dims < HALF, other=0.0)[None, :]
    place = heads + row * row_stride + numbers[:, None] * (2 * HALF) + dims[None, :]
    first = tl.load(place, mask=used, other=0.0).to(tl.float32)
    second = tl.load(place + HALF, mask=used, other=0.0).to(tl.float32)
    tl.store(place, (first * c - second * s).to(heads.dtype.element_ty), mask=used)
    tl.store(place + HALF, (second * c + first * s).to(heads.dtype.element_ty), mask=used)
