"""Read blocks of GGUF files as codes: those of 8 and 4 bits as they are stored, other types as 8 bits.

Layouts: `gguf.quants` of the package `gguf`, and ggml-common.h of llama.cpp, which it follows. A block is of 32
neighbouring inputs, and of 256 in the types that end with K, which hold a scale and a minimum for every 32.
"""

from collections.abc import Callable

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from numpy.typing import NDArray
from torch import Tensor

from unifiedserve.quantization.matrix import QuantizedMatrix, canonical, middle, with_minima
from unifiedserve.quantization.quantize import quantize
from unifiedserve.quantization.scheme import Scheme

Bytes = NDArray[np.uint8]
Decoded = tuple[Tensor, Tensor, Tensor]  # codes [blocks, ...], scales and zeros [blocks, groups]

_GROUP = 32
EIGHT_BITS = Scheme(8, _GROUP)
FOUR_BITS = Scheme(4, _GROUP)
#: values at a time, of which some float32 copies are made
_CHUNK = 1 << 22


def _q8_0(blocks: Bytes) -> Decoded:
    scales, codes = np.hsplit(blocks, [2])
    return torch.from_numpy(codes + np.uint8(128)), _halves(scales), middle(8)


def _q4_0(blocks: Bytes) -> Decoded:
    scales, codes = np.hsplit(blocks, [2])
    return _nibbles(codes), _halves(scales), middle(4)


def _q4_1(blocks: Bytes) -> Decoded:
    scales, minima, codes = np.hsplit(blocks, [2, 4])
    return with_minima(_nibbles(codes)[:, None], _halves(scales), _halves(minima))


def _q4_k(blocks: Bytes) -> Decoded:
    scale, minimum, factors, codes = np.hsplit(blocks, [2, 4, 16])
    steps, lows = (torch.from_numpy(each).float() for each in gguf.quants.Q4_K.get_scale_min(factors))
    pairs = _nibbles(codes.reshape(-1, _GROUP)).view(len(blocks), 8, _GROUP)
    return with_minima(pairs, _halves(scale) * steps, -_halves(minimum) * lows)


#: the types whose codes kernels take
_EXACT: dict[str, tuple[Scheme, Callable[[Bytes], Decoded]]] = {
    "Q8_0": (EIGHT_BITS, _q8_0),
    "Q4_0": (FOUR_BITS, _q4_0),
    "Q4_1": (FOUR_BITS, _q4_1),
    "Q4_K": (FOUR_BITS, _q4_k),
}
#: those that become other codes of 8 bits
_ROUNDED = ("Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS")
KINDS = (*_EXACT, *_ROUNDED)


def scheme_of(kind: str) -> Scheme:
    """Return what matrices of one of `KINDS` become."""
    return _EXACT[kind][0] if kind in _EXACT else EIGHT_BITS


def read_blocks(rows: Bytes, kind: str, scheme: Scheme) -> QuantizedMatrix:
    """Turn a matrix's rows uint8 [outputs, bytes] of one of `KINDS` into codes of its scheme.

    The scheme is `scheme_of` it, or EIGHT_BITS.
    """
    values, size = gguf.GGML_QUANT_SIZES[Kind[kind]]
    step = max(1, _CHUNK // (rows.shape[1] // size * values))
    chunks = [_read(rows[first : first + step], kind) for first in range(0, len(rows), step)]
    codes, scales, zeros = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    return QuantizedMatrix(codes, scales, zeros, scheme)


def _read(rows: Bytes, kind: str) -> Decoded:
    if kind not in _EXACT:
        return quantize(torch.from_numpy(gguf.dequantize(np.ascontiguousarray(rows), Kind[kind])), EIGHT_BITS)[:3]
    scheme, decode = _EXACT[kind]
    size = gguf.GGML_QUANT_SIZES[Kind[kind]][1]
    codes, scales, zeros = decode(np.ascontiguousarray(rows).reshape(-1, size))
    zeros = zeros.expand(scales.shape).reshape(len(rows), -1)
    return canonical(codes.reshape(len(rows), -1), scales.reshape(len(rows), -1), zeros, scheme)[:3]


def _nibbles(packed: Bytes) -> Tensor:
    """Return codes [n, 2 * bytes] of bytes [n, bytes]: first the low halves of all."""
    return torch.from_numpy(np.hstack([packed & 15, packed >> 4]))


def _halves(two_bytes: Bytes) -> Tensor:
    return torch.from_numpy(two_bytes.copy().view(np.float16).astype(np.float32))
