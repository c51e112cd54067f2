"""Codes for a plain matrix.

8 bits: a group's scale is its largest magnitude / 127, its zero 128. 4 bits: its zero is any code; of ranges from that
of all its values to 80 % of it the best is taken, each with the scale that is best for its codes (least squares).
"""

import torch
from torch import Tensor

from unifiedserve.quantization.matrix import QuantizedMatrix, middle
from unifiedserve.quantization.scheme import Scheme

_RANGES = (1.0, 0.95, 0.9, 0.85, 0.8)
#: values at a time: they and what is computed of them stay in the cores' caches
_CHUNK = 1 << 18
_TINY = torch.finfo(torch.float32).tiny


def quantize(weight: Tensor, scheme: Scheme) -> QuantizedMatrix:
    """Quantise a matrix [N, K] of any floating dtype, in groups that divide K. Peak memory is the result twice."""
    outputs, inputs = weight.shape
    quantize_groups = _to_8_bits if scheme.bits == 8 else _to_4_bits
    chunks = [
        quantize_groups(rows.float().reshape(len(rows), inputs // scheme.group, scheme.group))
        for rows in torch.split(weight, max(1, _CHUNK // inputs))
    ]
    codes, scales, zeros = (torch.cat(tensors) for tensors in zip(*chunks, strict=True))
    return QuantizedMatrix(codes.view(outputs, inputs), scales, zeros, scheme)


def _to_8_bits(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes, scales and zeros of values [N, groups, group]."""
    scales = values.abs().amax(-1).div_(127).clamp_min_(_TINY)
    zeros = middle(8).expand(scales.shape)
    codes = (values / scales[..., None]).round_().add_(128).clamp_(1, 255)
    return codes.to(torch.uint8), scales, zeros


def _to_4_bits(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes, scales and zeros of values [N, groups, group].

    Of steps (code minus zero) with their best scale the squared error is |values|² - (steps · values)² / |steps|².
    """
    low, high = values.amin(-1).clamp_max_(0), values.amax(-1).clamp_min_(0)
    full = (high - low).div_(15).clamp_min_(_TINY)
    zeros = (-low / full).round_()
    best, divisors, scales = torch.full_like(full, -1), full, full
    for share in _RANGES:
        steps = _steps(values, full * share, zeros)
        products, squares = torch.linalg.vecdot(steps, values), torch.linalg.vecdot(steps, steps).clamp_min_(_TINY)
        explained = products.square() / squares
        better = explained > best
        best = torch.where(better, explained, best)
        divisors = torch.where(better, full * share, divisors)
        scales = torch.where(better & (products > 0), products / squares, scales)
    codes = _steps(values, divisors, zeros).add_(zeros[..., None])
    return codes.to(torch.uint8), scales, zeros.to(torch.uint8)


def _steps(values: Tensor, divisors: Tensor, zeros: Tensor) -> Tensor:
    steps = (values / divisors[..., None]).round_()
    return torch.clamp(steps, -zeros[..., None], 15 - zeros[..., None], out=steps)
