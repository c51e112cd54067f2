"""A quantised matrix in the one form that kernels take, whatever it was stored as."""

from typing import NamedTuple

import torch
from torch import Tensor

from unifiedserve.quantization.scheme import Scheme


class QuantizedMatrix(NamedTuple):
    """A matrix [outputs, inputs] whose values are (codes - zeros) * scales; all tensors are contiguous.

    codes: uint8 [outputs, inputs], each below 2**bits; scales: float32, zeros: uint8 [outputs, inputs / group].
    """

    codes: Tensor
    scales: Tensor
    zeros: Tensor
    scheme: Scheme

    def dequantize(self) -> Tensor:
        """Return float32 [outputs, inputs]."""
        groups = self.codes.view(*self.scales.shape, self.scheme.group).float()
        return groups.sub_(self.zeros[..., None]).mul_(self.scales[..., None]).flatten(1)


def canonical(codes: Tensor, scales: Tensor, zeros: Tensor, scheme: Scheme) -> QuantizedMatrix:
    """Make a matrix of codes uint8 [N, K] and of scales and zeros [N or 1, stored groups], which are repeated."""
    outputs, groups = codes.shape[0], codes.shape[1] // scheme.group
    return QuantizedMatrix(
        codes.contiguous(), _spread(scales.float(), outputs, groups), _spread(zeros, outputs, groups), scheme
    )


def middle(bits: int) -> Tensor:
    """Return the zero of symmetric codes, uint8 [1, 1]."""
    return torch.full((1, 1), 2 ** (bits - 1), dtype=torch.uint8)


def _spread(values: Tensor, outputs: int, groups: int) -> Tensor:
    return values.repeat_interleave(groups // values.shape[1], dim=1).expand(outputs, groups).contiguous()
