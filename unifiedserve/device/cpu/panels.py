"""Lay weight matrices out as the kernels read them: panels of 16 outputs (see csrc/kernels.h).

Side by side lie lanes of 32 bits, each of one output: 1 input of float32, 2 of bfloat16, 4 codes of 8 bits, or 8 of 4
bits, of which the first four are the low halves of the lane's bytes.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.scheme import Scheme

OUTPUTS = 16
LANE_BYTES = 4


def panels_shape(outputs: int, inputs: int, dtype: torch.dtype) -> list[int]:
    """Return the shape of a matrix [outputs, inputs] in panels."""
    values = LANE_BYTES // dtype.itemsize
    return [-(-outputs // OUTPUTS), inputs // values, OUTPUTS, values]


def fits_panels(inputs: int, dtype: torch.dtype) -> bool:
    """Return whether inputs of a dtype fill lanes."""
    return inputs % (LANE_BYTES // dtype.itemsize) == 0


def to_panels(matrix: Tensor) -> Tensor:
    """Return a matrix [outputs, inputs] of float32, bfloat16 or codes (uint8) in panels; missing outputs are 0."""
    outputs, inputs = matrix.shape
    panels, lanes, _, values = panels_shape(outputs, inputs, matrix.dtype)
    rows = pad(matrix.contiguous(), (0, 0, 0, -outputs % OUTPUTS)).view(panels, OUTPUTS, lanes, values)
    return rows.transpose(1, 2).contiguous()


def from_panels(panels: Tensor, outputs: int) -> Tensor:
    """Return the matrix [outputs, inputs] that lies in panels."""
    rows = _lanes(panels).transpose(1, 2).reshape(-1, panels.shape[1])[:outputs]
    return rows.contiguous().view(panels.dtype)


def panel_rows(panels: Tensor, numbers: Tensor) -> Tensor:
    """Return what panels hold of outputs with these numbers, int64 [n]: [n, inputs], or [n, bytes] of codes."""
    return _lanes(panels)[numbers // OUTPUTS, :, numbers % OUTPUTS].view(panels.dtype)


def pack_halves(codes: Tensor) -> Tensor:
    """Return codes of 4 bits, uint8 [outputs, inputs], two in a byte: uint8 [outputs, inputs / 2]."""
    halves = codes.view(len(codes), -1, 2, LANE_BYTES)
    return (halves[:, :, 0] | halves[:, :, 1] << 4).flatten(1)


def decode(codes: Tensor, scales: Tensor, zeros: Tensor, inputs: int) -> Tensor:
    """Return what the codes of outputs mean, (code - zero) * scale: float32 [n, inputs].

    codes are uint8 [n, inputs], or [n, inputs / 2] as `pack_halves` makes them; scales and zeros are float16
    [n, groups].
    """
    if codes.shape[1] < inputs:
        halves = codes.view(len(codes), -1, 1, LANE_BYTES)
        codes = torch.cat([halves & 15, halves >> 4], dim=2).flatten(1)
    scheme = Scheme(8, inputs // scales.shape[1])  # each code has a byte here
    return QuantizedMatrix(codes, scales.float(), zeros.float(), scheme).dequantize()


def by_panel(table: Tensor) -> Tensor:
    """Return what each output has, [outputs, n], in the panels' order [panels, n, 16]; missing outputs have 0."""
    table = pad(table, (0, 0, 0, -len(table) % OUTPUTS))
    return table.view(-1, OUTPUTS, table.shape[1]).transpose(1, 2).contiguous()


def table_rows(table: Tensor, numbers: Tensor) -> Tensor:
    """Return what `by_panel` has put in order of outputs with these numbers, int64 [n]: [n, columns]."""
    return table[numbers // OUTPUTS, :, numbers % OUTPUTS]


def _lanes(panels: Tensor) -> Tensor:
    """Return panels' lanes, int32 [panels, lanes, 16]."""
    return panels.flatten(2).view(torch.int32)
