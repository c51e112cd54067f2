"""Compute the gate of a llama-like MLP."""

from functools import cache

import triton
import triton.language as tl
from torch import Tensor

from unifiedserve.device.triton.launcher import Launcher

#: columns of a program: 8 values a thread, which is 16 bytes of bfloat16
BLOCK = 1024


def silu_mul(gate_up: Tensor, width: int | None = None) -> Tensor:
    """Return silu(gate) * up of a fused product.

    gate_up: [T, 2 * intermediate], contiguous, gate before up; returns [T, intermediate] of the same dtype, or [T,
    width] with zeros behind. All is computed in float32 and rounded once. Raises ValueError if the product has an odd
    width or is not contiguous, or if it does not fit the result's width.
    """
    rows, columns = gate_up.shape
    intermediate = columns // 2
    width = intermediate if width is None else width
    if columns % 2 or width < intermediate or not gate_up.is_contiguous():
        raise ValueError(f"gate and up {(rows, columns)} must be contiguous and equally wide, at most {width} columns")
    out = gate_up.new_empty(rows, width)
    if rows:
        _launcher(intermediate, width)((rows, -(-width // BLOCK)), (gate_up, out))
    return out


@cache
def _launcher(intermediate: int, width: int) -> Launcher:
    return Launcher(_silu_mul, {"INTERMEDIATE": intermediate, "WIDTH": width, "BLOCK": BLOCK}, num_warps=4)


@triton.jit
def _silu_mul(gate_up, out, INTERMEDIATE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Take some columns of one row."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    used = columns < INTERMEDIATE
    gate_up += row * (2 * INTERMEDIATE)
    gate = tl.load(gate_up + columns, mask=used, other=0.0).to(tl.float32)
    up = tl.load(gate_up + INTERMEDIATE + columns, mask=used, other=0.0).to(tl.float32)
    result = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * WIDTH + columns, result.to(out.dtype.element_ty), mask=columns < WIDTH)
