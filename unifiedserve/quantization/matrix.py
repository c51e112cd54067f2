"""Hold a quantised matrix in the one form that kernels take."""

from typing import NamedTuple

import torch
from torch import Tensor

from unifiedserve.quantization.scheme import Scheme

#: a minimum over its scale, beyond which float16 has no zero
_STEEPEST = 60000.0


class QuantizedMatrix(NamedTuple):
    """Hold a matrix [outputs, inputs] whose values are (codes - zeros) * scales; all tensors are contiguous.

    codes: uint8 [outputs, inputs], each below 2**bits; scales, zeros: float32 [outputs, inputs / group]. A zero may be
    any number.
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
    """Make a matrix of codes uint8 [N, K] with scales and zeros. These are [N or 1, stored groups] and are repeated."""
    outputs, groups = codes.shape[0], codes.shape[1] // scheme.group
    return QuantizedMatrix(
        codes.contiguous(), _spread(scales.float(), outputs, groups), _spread(zeros.float(), outputs, groups), scheme
    )


def with_minima(codes: Tensor, scales: Tensor, minima: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes, scales and zeros for values codes * scales + minima.

    codes are uint8 [..., groups, group], all else [..., groups]. Of a group whose values differ by less than 16 bits
    can tell from its minimum all become that: (0 + 1) * minimum.
    """
    flat = minima.abs() >= _STEEPEST * scales.abs()
    zeros = torch.where(flat, -1.0, -minima / scales)
    return codes.masked_fill(flat[..., None], 0), torch.where(flat, minima, scales), zeros


def middle(bits: int) -> Tensor:
    """Return the zero of symmetric codes, float32 [1, 1]."""
    return torch.full((1, 1), 2.0 ** (bits - 1))


def _spread(values: Tensor, outputs: int, groups: int) -> Tensor:
    return values.repeat_interleave(groups // values.shape[1], dim=1).expand(outputs, groups).contiguous()
