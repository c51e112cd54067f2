"""Replace transformers' own modules over weights that lie in panels."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from unifiedserve import _core
from unifiedserve.device.cpu.dtypes import KERNEL_DTYPES
from unifiedserve.device.cpu.matrix import Matrix
from unifiedserve.device.cpu.panels import fits_panels
from unifiedserve.device.cpu.processor import thread_pool

Step = Literal["none", "silu", "plus", "times"]


class PanelLinear(nn.Module):
    """Replace a torch.nn.Linear. Inputs have the matrix's dtype, or its bias's if it is of codes."""

    bias: Tensor | None

    def __init__(self, matrix: Matrix, bias: Tensor | None) -> None:
        """Take the weights. Raises ValueError if they do not have the matrix's sizes."""
        super().__init__()
        self.matrix = matrix
        self.register_buffer("bias", bias, persistent=False)
        self.in_features, self.out_features = matrix.inputs, matrix.outputs
        self._native = matrix.native(bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return [..., outputs] of x [..., inputs]."""
        return self.then(x.reshape(-1, self.in_features), "none").view(*x.shape[:-1], self.out_features)

    def then(self, x: Tensor, step: Step, other: Tensor | None = None) -> Tensor:
        """Return a step of [n, outputs] of x [n, inputs], rounded once; "plus" and "times" are of `other`."""
        out = x.new_empty(len(x), self.out_features)
        other = None if other is None else other.contiguous()
        _core.linear_then(thread_pool(), x.contiguous(), self._native, step, other, out)
        return out

    def floats(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Return float32 [n, outputs] of x [n, inputs], in `out` if that is given."""
        out = x.new_empty(len(x), self.out_features, dtype=torch.float32) if out is None else out
        _core.linear(thread_pool(), x.contiguous(), self._native, out)
        return out


class PanelEmbedding(nn.Module):
    """Replace a torch.nn.Embedding of a dtype, or a kind of it whose rows transformers scales."""

    def __init__(self, matrix: Matrix, module: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.matrix = matrix
        self._dtype = dtype
        self.scale: Tensor | None
        self.register_buffer("scale", getattr(module, "embed_scale", None), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the rows [..., inputs] of ids int64 [...]."""
        rows = self.matrix.take(ids.flatten(), self._dtype).view(*ids.shape, -1)
        return rows if self.scale is None else rows * self.scale.to(rows.dtype)


def in_panels(module: Any) -> Any:
    """Return a linear layer with a copy of its weights in panels; the same if it has them or they cannot be had."""
    if isinstance(module, PanelLinear) or not packs(module.in_features, module.weight.dtype):
        return module
    return PanelLinear(Matrix.of(module.weight), module.bias)


def packs(inputs: int, dtype: torch.dtype) -> bool:
    """Return whether the kernels know matrices of so many inputs."""
    return dtype in KERNEL_DTYPES and fits_panels(inputs, dtype)


def fill_panels(model: Any, dtype: torch.dtype) -> bool:
    """Return whether all linear layers of a model have matrices that the kernels know."""
    return all(packs(module.in_features, dtype) for module in model.modules() if isinstance(module, nn.Linear))


def weight_bits(model: Any) -> float:
    """Return the mean bits of a weight, scales included, of the linear layers in panels; 16 without any."""
    matrices = [module.matrix for module in model.modules() if isinstance(module, PanelLinear)]
    values = sum(matrix.outputs * matrix.inputs for matrix in matrices)
    return 8 * sum(matrix.nbytes for matrix in matrices) / values if values else 16.0
