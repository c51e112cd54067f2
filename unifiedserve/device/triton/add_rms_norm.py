"""Add a residual and take its RMSNorm (arXiv:1910.07467), in one pass."""

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from unifiedserve.device.triton.launcher import Launcher


def add_rms_norm(residual: Tensor, delta: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
    """Add `delta` to the residual in place, and return its norm times `weight`.

    residual: float32 [T, hidden], contiguous; delta: [T, hidden] of any float dtype, contiguous, or None; weight:
    [hidden]; returns [T, hidden] of weight's dtype. All is computed in float32 and rounded once. Raises ValueError if
    shapes, strides or the residual's dtype are others.
    """
    if residual.dtype != torch.float32 or not residual.is_contiguous():
        raise ValueError(f"the residual must be contiguous and float32, is {residual.dtype}")
    rows, hidden = shape = residual.shape
    if (hidden,) != weight.shape or (delta is not None and delta.shape != shape):
        raise ValueError(f"residual {tuple(shape)}, its summand and {len(weight)} weights do not fit")
    if delta is not None and not delta.is_contiguous():
        raise ValueError("the residual's summand must be contiguous")
    normed = torch.empty_like(residual, dtype=weight.dtype)
    if rows:
        _launcher(hidden)((rows, 1), (residual, delta, weight, normed), (epsilon,))
    return normed


@cache
def _launcher(hidden: int) -> Launcher:
    warps = 4 if hidden <= 2048 else 8  # so that a row of 8192 is 32 registers of a thread
    return Launcher(_add_rms_norm, {"HIDDEN": hidden, "BLOCK": triton.next_power_of_2(hidden)}, num_warps=warps)


@triton.jit
def _add_rms_norm(residual, delta, weight, normed, epsilon, HIDDEN: tl.constexpr, BLOCK: tl.constexpr):
    """Take one row."""
    columns = tl.arange(0, BLOCK)
    used = columns < HIDDEN
    row = tl.program_id(0).to(tl.int64) * HIDDEN + columns
    x = tl.load(residual + row, mask=used, other=0.0)
    if delta is not None:
        x += tl.load(delta + row, mask=used, other=0.0).to(tl.float32)
        tl.store(residual + row, x, mask=used)
    norm = 1.0 / tl.sqrt(tl.sum(x * x, 0) / HIDDEN + epsilon)
    result = x * norm * tl.load(weight + columns, mask=used, other=0.0).to(tl.float32)
    tl.store(normed + row, result.to(normed.dtype.element_ty), mask=used)
