"""One row times a matrix without tensor cores, to compare with cuBLAS: nothing of it serves."""

import triton
import triton.language as tl
from torch import Tensor

#: outputs and inputs of a program's block
BLOCK_OUTPUTS, BLOCK_INPUTS = 4, 1024


def row_product(x: Tensor, weight: Tensor) -> Tensor:
    """Return x @ weight.T of x [1, inputs] and weight [outputs, inputs], both contiguous, summed in float32."""
    outputs, inputs = weight.shape
    out = x.new_empty(1, outputs)
    _row_product[(triton.cdiv(outputs, BLOCK_OUTPUTS),)](
        x, weight, out, outputs, inputs, BLOCK_OUTPUTS, BLOCK_INPUTS, num_warps=4
    )
    return out


@triton.jit
def _row_product(
    x,
    weight,
    out,
    outputs: tl.constexpr,
    inputs: tl.constexpr,
    block_outputs: tl.constexpr,
    block_inputs: tl.constexpr,
):
    """Make some outputs: their rows of the matrix are read block by block, and summed up at the end."""
    rows = tl.program_id(0) * block_outputs + tl.arange(0, block_outputs)
    columns = tl.arange(0, block_inputs)
    place = weight + rows.to(tl.int64)[:, None] * inputs + columns[None, :]
    sums = tl.zeros([block_outputs, block_inputs], tl.float32)
    for first in range(0, inputs, block_inputs):
        there = first + columns < inputs
        factor = tl.load(x + first + columns, mask=there, other=0.0).to(tl.float32)
        used = there[None, :] & (rows < outputs)[:, None]
        sums += tl.load(place + first, mask=used, other=0.0).to(tl.float32) * factor[None, :]
    tl.store(out + rows, tl.sum(sums, 1).to(out.dtype.element_ty), mask=rows < outputs)
