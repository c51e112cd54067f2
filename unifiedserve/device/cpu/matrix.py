"""Hold a weight matrix as the kernels read it: in panels, of floats or of codes."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unifiedserve import _core
from unifiedserve.device.adjacent import back_to_back
from unifiedserve.device.cpu.panels import OUTPUTS, decode, from_panels, panel_rows, table_rows, to_panels


class Matrix(NamedTuple):
    """Hold a matrix [outputs, inputs]. With scales and zeros [panels, groups, 16] it is of codes (see `decode`).

    Zeros that are the same for all are [1, 1, 16].
    """

    panels: Tensor
    outputs: int
    inputs: int
    scales: Tensor | None = None
    zeros: Tensor | None = None

    @classmethod
    def of(cls, rows: Tensor) -> "Matrix":
        """Return a copy of a matrix of float32 or bfloat16 that lies row by row."""
        outputs, inputs = rows.shape
        return cls(to_panels(rows), outputs, inputs)

    @property
    def zero(self) -> float | None:
        """Return the zero of all codes, if it is stored once."""
        if self.scales is None or self.zeros is None or self.zeros.shape == self.scales.shape:
            return None
        return float(self.zeros[0, 0, 0])

    @property
    def nbytes(self) -> int:
        """Return the bytes of all that belongs to it."""
        return sum(part.nbytes for part in (self.panels, self.scales, self.zeros) if part is not None)

    def native(self, bias: Tensor | None = None) -> _core.Weight:
        """Return it for the kernels, with a bias [outputs]. Raises ValueError if its tensors do not have its sizes."""
        return _core.Weight(self.panels, self.outputs, self.inputs, bias, self.scales, self.zeros)

    def rows(self, dtype: torch.dtype) -> Tensor:
        """Return it row by row, of a dtype: a copy."""
        if self.scales is None:
            return from_panels(self.panels, self.outputs).to(dtype)
        return self.take(torch.arange(self.outputs), dtype)

    def take(self, numbers: Tensor, dtype: torch.dtype) -> Tensor:
        """Return rows int64 [n]: [n, inputs] of a dtype."""
        rows = panel_rows(self.panels, numbers)
        if self.scales is None or self.zeros is None:
            return rows.to(dtype)
        zeros = table_rows(self.zeros.expand_as(self.scales), numbers)
        return decode(rows, table_rows(self.scales, numbers), zeros, self.inputs).to(dtype)


def joined(parts: Sequence[Matrix], dtype: torch.dtype) -> Matrix:
    """Return the matrices one below the other: in a view if they lie so in memory, else in a copy of `dtype`."""
    if len(parts) == 1:
        return parts[0]
    outputs, inputs = sum(part.outputs for part in parts), parts[0].inputs
    kinds = {(part.panels.dtype, part.panels.shape[1], _groups(part), part.zero) for part in parts}
    if len(kinds) > 1 or any(part.outputs % OUTPUTS for part in parts[:-1]):
        return Matrix.of(torch.cat([part.rows(dtype) for part in parts]))
    panels = back_to_back([part.panels for part in parts])
    if parts[0].scales is None:
        return Matrix(panels, outputs, inputs)
    scales, zeros = (back_to_back([getattr(part, name) for part in parts]) for name in ("scales", "zeros"))
    return Matrix(panels, outputs, inputs, scales, zeros if parts[0].zero is None else parts[0].zeros)


def _groups(part: Matrix) -> int | None:
    return None if part.scales is None else part.scales.shape[1]
