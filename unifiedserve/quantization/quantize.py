"""Compute codes for a plain matrix.

8 bits: a group's scale is its largest magnitude / 127, its zero 128. 4 bits: its zero is any number; of ranges from
that of all its values to 80 % of it the best is taken, each with the scale and zero that are best for its codes.
"""

import torch
from torch import Tensor

from unifiedserve.quantization.matrix import QuantizedMatrix, middle, with_minima
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

    Codes that deviate from their mean by c, and values by v, have the scale (c · v) / |c|² and the squared error
    |v|² - (c · v)² / |c|² (least squares with an intercept).
    """
    low, high = values.aminmax(dim=-1)
    centre, reach = (low + high) / 2, ((high - low) / 2).clamp_min_(8 * _TINY)
    means = values.mean(-1)
    deviations = values - means[..., None]
    best, reaches, scales = torch.full_like(reach, -1), reach, torch.zeros_like(reach)
    for share in _RANGES:
        codes = _codes(values, centre, reach * share)
        codes -= codes.mean(-1, keepdim=True)
        products, squares = torch.linalg.vecdot(codes, deviations), torch.linalg.vecdot(codes, codes)
        explained = products.square() / squares.clamp_min(_TINY)
        better = explained > best
        best = torch.where(better, explained, best)
        reaches = torch.where(better, reach * share, reaches)
        scales = torch.where(better, products / squares.clamp_min(_TINY), scales)
    codes = _codes(values, centre, reaches)
    return with_minima(codes.to(torch.uint8), scales, means - codes.mean(-1) * scales)


def _codes(values: Tensor, centre: Tensor, reach: Tensor) -> Tensor:
    """Return the codes 0 to 15 of values [..., group]. Their range [...] lies around its centre."""
    steps = (values - centre[..., None]) * (7.5 / reach)[..., None]
    return steps.add_(7.5).round_().clamp_(0, 15)
