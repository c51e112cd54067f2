"""Compute codes for a plain matrix.

8 bits: a group's scale is its largest magnitude / 127, its zero 128. 4 bits: its zero is any number; of ranges from
that of all its values to 80 % of it the best is taken, each with the scale and zero that are best for its codes. Best
means the smallest sum of squared errors, each times the importance of its input.
"""

from functools import partial

import torch
from torch import Tensor

from unifiedserve.quantization.matrix import QuantizedMatrix, with_minima
from unifiedserve.quantization.scheme import Scheme

#: of all codes of 8 bits
ZERO = 128
_RANGES = (1.0, 0.95, 0.9, 0.85, 0.8)
#: values at a time: they and what is computed of them stay in the cores' caches
_CHUNK = 1 << 18
_TINY = torch.finfo(torch.float32).tiny
#: the importance of an input that a text never used, as a share of its group's largest: other texts may use it
_UNUSED = 0.01


def quantize(weight: Tensor, scheme: Scheme, importance: Tensor | None = None) -> QuantizedMatrix:
    """Quantise a matrix [N, K] of any floating dtype, in groups that divide K. Peak memory is the result twice.

    The importance of inputs is float32 [K] and not negative; None: all are alike. 8 bits do without it.
    """
    outputs, inputs = weight.shape
    shares = None if importance is None else _shares(importance.view(-1, scheme.group))
    quantize_groups = _to_8_bits if scheme.bits == 8 else partial(_to_4_bits, shares=shares)
    chunks = [
        quantize_groups(rows.float().reshape(len(rows), inputs // scheme.group, scheme.group))
        for rows in torch.split(weight, max(1, _CHUNK // inputs))
    ]
    codes, scales, zeros = (torch.cat(tensors) for tensors in zip(*chunks, strict=True))
    return QuantizedMatrix(codes.view(outputs, inputs), scales, zeros, scheme)


def _shares(importance: Tensor) -> Tensor:
    """Return the importance [groups, group] with a mean of 1 in each group; of a group of zeros all are 1."""
    largest = importance.amax(-1, keepdim=True)
    scaled = torch.where(largest > 0, importance / largest, 1.0)
    scaled = torch.where(scaled > 0, scaled, _UNUSED)
    return scaled / scaled.mean(-1, keepdim=True)


def _to_8_bits(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes, scales and zeros of values [N, groups, group]."""
    scales = values.abs().amax(-1).div_(127).clamp_min_(_TINY)
    codes = (values / scales[..., None]).round_().add_(ZERO).clamp_(1, 255)
    return codes.to(torch.uint8), scales, torch.full_like(scales, ZERO)


def _to_4_bits(values: Tensor, shares: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes, scales and zeros of values [N, groups, group], whose inputs have shares [groups, group].

    Codes that deviate from their mean by c, and values by v, have the scale (c · v) / |c|² and the squared error
    |v|² - (c · v)² / |c|² (least squares with an intercept). Means and products are weighted by the shares.
    """
    low, high = values.aminmax(dim=-1)
    centre, reach = (low + high) / 2, ((high - low) / 2).clamp_min_(8 * _TINY)
    means = _weighted(values, shares).mean(-1)
    deviations = _weighted(values - means[..., None], shares)
    best, reaches, scales = torch.full_like(reach, -1), reach, torch.zeros_like(reach)
    for share in _RANGES:
        codes = _codes(values, centre, reach * share)
        codes -= _weighted(codes, shares).mean(-1, keepdim=True)
        products = torch.linalg.vecdot(codes, deviations)
        squares = torch.linalg.vecdot(codes, _weighted(codes, shares))
        explained = products.square() / squares.clamp_min(_TINY)
        better = explained > best
        best = torch.where(better, explained, best)
        reaches = torch.where(better, reach * share, reaches)
        scales = torch.where(better, products / squares.clamp_min(_TINY), scales)
    codes = _codes(values, centre, reaches)
    return with_minima(codes.to(torch.uint8), scales, means - _weighted(codes, shares).mean(-1) * scales)


def _weighted(values: Tensor, shares: Tensor | None) -> Tensor:
    return values if shares is None else values * shares


def _codes(values: Tensor, centre: Tensor, reach: Tensor) -> Tensor:
    """Return the codes 0 to 15 of values [..., group]. Their range [...] lies around its centre."""
    steps = (values - centre[..., None]) * (7.5 / reach)[..., None]
    return steps.add_(7.5).round_().clamp_(0, 15)
