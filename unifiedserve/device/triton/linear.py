"""Compute a linear layer whose sums have one order, whatever the number of rows.

A program makes one tile of outputs, block after block of inputs. The tile's shape, and into how many parts a layer's
inputs are split so that there are programs enough for few rows, follow from the layer alone; parts are added in their
order. Libraries choose both by the number of rows: see "Defeating Nondeterminism in LLM Inference" (Thinking Machines
Lab, 2025).
"""

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from unifiedserve.device.triton.launcher import Launcher

#: programs that a layer is split into at most, if one row is to be read by many multiprocessors
PROGRAMS = 128
#: inputs of a part: so many that its sums cost little beside reading its weights
LEAST_INPUTS = 1024
#: outputs of a program that adds parts
ADDED = 1024


class Tile(NamedTuple):
    """Set a program's rows and outputs, a block's inputs, warps, and the loop's stages."""

    rows: int
    outputs: int
    inputs: int
    warps: int
    stages: int


#: of 16 bits four stages are 96 KiB, which every GPU has; products of float32 are made in registers
TILES = {
    torch.bfloat16: Tile(64, 128, 64, warps=4, stages=4),
    torch.float16: Tile(64, 128, 64, warps=4, stages=4),
    torch.float32: Tile(64, 64, 16, warps=8, stages=3),
}


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight.T + bias. Each row is the same to the bit among any others.

    x: [T, inputs]; weight: [outputs, inputs], whose rows may lie apart; bias: [outputs] or None; returns [T, outputs].
    All are of one dtype of TILES. All is summed in float32, without TF32, and rounded once. Raises ValueError if shapes
    or dtypes are others.
    """
    rows, inputs = x.shape
    outputs = len(weight)
    if weight.shape != (outputs, inputs) or (bias is not None and bias.shape != (outputs,)):
        raise ValueError(f"{tuple(x.shape)}, weights {tuple(weight.shape)} and their bias do not fit")
    if not x.dtype == weight.dtype == (weight if bias is None else bias).dtype or x.dtype not in TILES:
        raise ValueError(f"rows are {x.dtype}, weights {weight.dtype}: they and the bias must be one float type")
    if weight.stride(1) != 1 or (bias is not None and not bias.is_contiguous()):
        raise ValueError("each row of weights and the bias must be contiguous")
    out = x.new_empty(rows, outputs)
    if not rows:
        return out
    tile, part = TILES[x.dtype], part_inputs(inputs, outputs, x.dtype)
    parts, tiles = -(-inputs // part), -(-rows // tile.rows) * -(-outputs // tile.outputs)
    sums = out if parts == 1 else x.new_empty(parts, rows, outputs, dtype=torch.float32)
    multiply = _multiply_launcher(x.dtype, inputs, outputs, weight.stride(0), part)
    multiply((tiles, parts), (x.contiguous(), weight, bias if parts == 1 else None, sums), (rows,))
    if parts > 1:
        _add_launcher(outputs, parts)((rows, -(-outputs // ADDED)), (sums, bias, out), (rows,))
    return out


def part_inputs(inputs: int, outputs: int, dtype: torch.dtype) -> int:
    """Return how many inputs of a layer are summed by one program."""
    tile = TILES[dtype]
    parts = max(1, min(PROGRAMS // -(-outputs // tile.outputs), inputs // LEAST_INPUTS))
    return -(-inputs // (parts * tile.inputs)) * tile.inputs


@cache
def _multiply_launcher(dtype: torch.dtype, inputs: int, outputs: int, stride: int, part: int) -> Launcher:
    tile = TILES[dtype]
    constants = {
        "INPUTS": inputs,
        "OUTPUTS": outputs,
        "STRIDE": stride,
        "PART_INPUTS": part,
        "BLOCK_ROWS": tile.rows,
        "BLOCK_OUTPUTS": tile.outputs,
        "BLOCK_INPUTS": tile.inputs,
    }
    return Launcher(_multiply, constants, num_warps=tile.warps, num_stages=tile.stages)


@cache
def _add_launcher(outputs: int, parts: int) -> Launcher:
    return Launcher(_add, {"OUTPUTS": outputs, "PARTS": parts, "BLOCK_OUTPUTS": ADDED}, num_warps=4)


@triton.jit(do_not_specialize=["rows"])
def _multiply(
    x,
    weight,
    bias,
    sums,
    rows,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    STRIDE: tl.constexpr,
    PART_INPUTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    BLOCK_INPUTS: tl.constexpr,
):
    """Take one tile of one part; neighbours share weights, so that these are read from memory once."""
    row_tiles = tl.cdiv(rows, BLOCK_ROWS)
    row = tl.program_id(0) % row_tiles * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    output = tl.program_id(0) // row_tiles * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    part = tl.program_id(1)
    lanes = tl.arange(0, BLOCK_INPUTS)
    of_row = x + row.to(tl.int64)[:, None] * INPUTS
    of_output = weight + output.to(tl.int64)[:, None] * STRIDE
    there, used = (row < rows)[:, None], (output < OUTPUTS)[:, None]

    total = tl.zeros([BLOCK_ROWS, BLOCK_OUTPUTS], tl.float32)
    for first in range(part * PART_INPUTS, min((part + 1) * PART_INPUTS, INPUTS), BLOCK_INPUTS):
        place = (first + lanes)[None, :]
        left = tl.load(of_row + place, mask=there & (place < INPUTS), other=0.0)
        right = tl.load(of_output + place, mask=used & (place < INPUTS), other=0.0)
        total = tl.dot(left, tl.trans(right), total, input_precision="ieee")
    if bias is not None:
        total += tl.load(bias + output, mask=output < OUTPUTS, other=0.0).to(tl.float32)[None, :]
    place = (part.to(tl.int64) * rows + row)[:, None] * OUTPUTS + output[None, :]
    tl.store(sums + place, total.to(sums.dtype.element_ty), mask=there & (output < OUTPUTS)[None, :])


@triton.jit(do_not_specialize=["rows"])
def _add(sums, bias, out, rows, OUTPUTS: tl.constexpr, PARTS: tl.constexpr, BLOCK_OUTPUTS: tl.constexpr):
    """Add the parts of some outputs of one row."""
    row = tl.program_id(0).to(tl.int64)
    output = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    used = output < OUTPUTS
    total = tl.zeros([BLOCK_OUTPUTS], tl.float32)
    for part in tl.static_range(PARTS):
        total += tl.load(sums + (part * rows.to(tl.int64) + row) * OUTPUTS + output, mask=used, other=0.0)
    if bias is not None:
        total += tl.load(bias + output, mask=used, other=0.0).to(tl.float32)
    tl.store(out + row * OUTPUTS + output, total.to(out.dtype.element_ty), mask=used)
