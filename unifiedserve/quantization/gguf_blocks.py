"""Read blocks of GGUF files as codes, all of them as they are stored.

Layouts: `gguf.quants` of the package `gguf`, and ggml-common.h of llama.cpp, which it follows. A block is of 32
neighbouring inputs, and of 256 in the types that end with K or XS, in which every 16 or 32 have a scale of their own.
"""

from collections.abc import Callable

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from numpy.typing import NDArray
from torch import Tensor

from unifiedserve.quantization.matrix import QuantizedMatrix, canonical, middle, with_minima
from unifiedserve.quantization.scheme import Scheme

Bytes = NDArray[np.uint8]
Decoded = tuple[Tensor, Tensor, Tensor]  # codes [blocks, ...], scales and zeros [blocks, groups]

EIGHT_BITS = Scheme(8, 32)
_SIGNED = Scheme(8, 32, zero=128)
#: values at a time, of which some float32 copies are made
_CHUNK = 1 << 22
#: the values that IQ4 codes stand for, as codes of 8 bits
_UNEVEN = np.array(gguf.quants.IQ4_NL.kvalues, np.int16).astype(np.uint8) + np.uint8(128)


def _q8_0(blocks: Bytes) -> Decoded:
    scales, codes = np.hsplit(blocks, [2])
    return torch.from_numpy(codes + np.uint8(128)), _halves(scales), middle(8)


def _q4_0(blocks: Bytes) -> Decoded:
    scales, codes = np.hsplit(blocks, [2])
    return _tensor(_nibbles(codes)), _halves(scales), middle(4)


def _q4_1(blocks: Bytes) -> Decoded:
    scales, minima, codes = np.hsplit(blocks, [2, 4])
    return with_minima(_tensor(_nibbles(codes))[:, None], _halves(scales), _halves(minima))


def _q5_0(blocks: Bytes) -> Decoded:
    scales, high, low = np.hsplit(blocks, [2, 6])
    return _tensor(_five_bits(low, high)), _halves(scales), middle(5)


def _q5_1(blocks: Bytes) -> Decoded:
    scales, minima, high, low = np.hsplit(blocks, [2, 4, 8])
    return with_minima(_tensor(_five_bits(low, high))[:, None], _halves(scales), _halves(minima))


def _q2_k(blocks: Bytes) -> Decoded:
    factors, codes, scale, minimum = np.hsplit(blocks, [16, 80, 82])
    steps, lows = _tensor(factors & 15).float(), _tensor(factors >> 4).float()
    pieces = _tensor(_shifted(codes, 32, (0, 2, 4, 6), 3).reshape(len(blocks), 16, 16))
    return with_minima(pieces, _halves(scale) * steps, -_halves(minimum) * lows)


def _q3_k(blocks: Bytes) -> Decoded:
    high, low, factors, scale = np.hsplit(blocks, [32, 96, 108])
    codes = _shifted(low, 32, (0, 2, 4, 6), 3) | _shifted(high, 32, tuple(range(8)), 1) << np.uint8(2)
    lower, upper = np.hsplit(factors, [8])
    steps = _shifted(lower, 8, (0, 4), 15) | _shifted(upper, 4, (0, 2, 4, 6), 3) << np.uint8(4)
    return _tensor(codes), _halves(scale) * (_tensor(steps).float() - 32), middle(3)


def _q4_k(blocks: Bytes) -> Decoded:
    scale, minimum, factors, codes = np.hsplit(blocks, [2, 4, 16])
    return _with_super_block(_shifted(codes, 32, (0, 4), 15), scale, minimum, factors)


def _q5_k(blocks: Bytes) -> Decoded:
    scale, minimum, factors, high, low = np.hsplit(blocks, [2, 4, 16, 48])
    codes = _shifted(low, 32, (0, 4), 15) | _shifted(high, 32, tuple(range(8)), 1) << np.uint8(4)
    return _with_super_block(codes, scale, minimum, factors)


def _q6_k(blocks: Bytes) -> Decoded:
    low, high, factors, scale = np.hsplit(blocks, [128, 192, 208])
    codes = _shifted(low, 64, (0, 4), 15) | _shifted(high, 32, (0, 2, 4, 6), 3) << np.uint8(4)
    return _tensor(codes), _halves(scale) * _tensor(factors.view(np.int8)).float(), middle(6)


def _iq4_nl(blocks: Bytes) -> Decoded:
    scales, codes = np.hsplit(blocks, [2])
    return _tensor(_UNEVEN[_nibbles(codes)]), _halves(scales), middle(8)


def _iq4_xs(blocks: Bytes) -> Decoded:
    scale, high, low, codes = np.hsplit(blocks, [2, 4, 8])
    lower = (low[..., None] >> np.array([0, 4], np.uint8) & 15).reshape(len(blocks), 8)
    upper = (high.copy().view(np.uint16) >> np.arange(0, 16, 2, dtype=np.uint16)).astype(np.uint8) & 3
    steps = _tensor(lower | upper << np.uint8(4)).float() - 32
    return _tensor(_UNEVEN[_shifted(codes, 16, (0, 4), 15)]), _halves(scale) * steps, middle(8)


_TYPES: dict[str, tuple[Scheme, Callable[[Bytes], Decoded]]] = {
    "Q8_0": (_SIGNED, _q8_0),
    "Q4_0": (Scheme(4, 32, zero=8), _q4_0),
    "Q4_1": (Scheme(4, 32), _q4_1),
    "Q5_0": (Scheme(8, 32, zero=16), _q5_0),
    "Q5_1": (EIGHT_BITS, _q5_1),
    "Q2_K": (Scheme(4, 16), _q2_k),
    "Q3_K": (Scheme(4, 16, zero=4), _q3_k),
    "Q4_K": (Scheme(4, 32), _q4_k),
    "Q5_K": (EIGHT_BITS, _q5_k),
    "Q6_K": (Scheme(8, 16, zero=32), _q6_k),
    "IQ4_NL": (_SIGNED, _iq4_nl),
    "IQ4_XS": (_SIGNED, _iq4_xs),
}
KINDS = tuple(_TYPES)


def scheme_of(kind: str) -> Scheme:
    """Return what matrices of one of `KINDS` become."""
    return _TYPES[kind][0]


def block_of(kind: str) -> tuple[int, int]:
    """Return the values and the bytes of a block of any type."""
    values, size = gguf.GGML_QUANT_SIZES[Kind[kind]]
    return int(values), int(size)


def read_blocks(rows: Bytes, kind: str, scheme: Scheme) -> QuantizedMatrix:
    """Turn a matrix's rows uint8 [outputs, bytes] of one of `KINDS` into codes of its scheme.

    The scheme is `scheme_of` it, or one of more bits or smaller groups, as other types beside it may need.
    """
    values, size = block_of(kind)
    step = max(1, _CHUNK // (rows.shape[1] // size * values))
    chunks = [_read(rows[first : first + step], kind, scheme) for first in range(0, len(rows), step)]
    codes, scales, zeros = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    return QuantizedMatrix(codes, scales, zeros, scheme)


def _read(rows: Bytes, kind: str, scheme: Scheme) -> Decoded:
    _, size = block_of(kind)
    codes, scales, zeros = _TYPES[kind][1](np.ascontiguousarray(rows).reshape(-1, size))
    zeros = zeros.expand(scales.shape).reshape(len(rows), -1)
    return canonical(codes.reshape(len(rows), -1), scales.reshape(len(rows), -1), zeros, scheme)[:3]


def _with_super_block(codes: Bytes, scale: Bytes, minimum: Bytes, factors: Bytes) -> Decoded:
    """Return codes [blocks, 256] whose groups have scales and minima of 6 bits."""
    steps, lows = (_tensor(each).float() for each in gguf.quants.Q4_K.get_scale_min(factors))
    return with_minima(_tensor(codes).view(len(codes), 8, 32), _halves(scale) * steps, -_halves(minimum) * lows)


def _shifted(packed: Bytes, width: int, shifts: tuple[int, ...], mask: int) -> Bytes:
    """Return codes [n, codes] of bytes [n, bytes]: `width` bytes at a time, for each shift the codes of all of them."""
    parts = packed.reshape(len(packed), -1, 1, width) >> np.array(shifts, np.uint8)[:, None]
    return (parts & np.uint8(mask)).reshape(len(packed), -1)


def _nibbles(packed: Bytes) -> Bytes:
    return _shifted(packed, packed.shape[1], (0, 4), 15)


def _five_bits(low: Bytes, high: Bytes) -> Bytes:
    """Return codes [n, 32] of low halves [n, 16] and 4 bytes of fifth bits."""
    return _nibbles(low) | np.unpackbits(high, axis=1, bitorder="little") << np.uint8(4)


def _tensor(array: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def _halves(two_bytes: Bytes) -> Tensor:
    return torch.from_numpy(two_bytes.copy().view(np.float16).astype(np.float32))
