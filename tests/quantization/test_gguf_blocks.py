"""Blocks of GGUF files: their values are those that the package `gguf` reads."""

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf_files import random_blocks, stored
from hypothesis import given
from hypothesis import strategies as st
from stored_weights import check_value

from unifiedserve.quantization.gguf_blocks import EIGHT_BITS, read_blocks, scheme_of

EXACT = [Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q4_K]
ROUNDED = [Kind.Q5_0, Kind.Q5_1, Kind.IQ4_NL, Kind.Q2_K, Kind.Q3_K, Kind.Q5_K, Kind.Q6_K]


def draw(kind: Kind, outputs: int, blocks: int, seed: int, mean: float = 0.0) -> np.ndarray:
    values = np.random.default_rng(seed).normal(mean, 0.02, (outputs, blocks * gguf.GGML_QUANT_SIZES[kind][0]))
    if kind == Kind.IQ4_NL:  # a scale, and any codes
        scales = np.full((outputs * blocks, 2), np.array([1e-3], np.float16).view(np.uint8))
        codes = np.random.default_rng(seed).integers(0, 256, (outputs * blocks, 16), dtype=np.uint8)
        return np.hstack([scales, codes]).reshape(outputs, -1)
    return stored(values.astype(np.float32), kind, seed)


@given(
    kind=st.sampled_from(EXACT),
    outputs=st.integers(1, 5),
    blocks=st.integers(1, 4),
    wide=st.booleans(),
    mean=st.sampled_from([0.0, 0.5, -30.0]),
    seed=st.integers(0, 99),
)
def test_codes_are_kept(kind: Kind, outputs: int, blocks: int, wide: bool, mean: float, seed: int) -> None:
    """Also where 4 bits are to lie beside 8."""
    rows = draw(kind, outputs, blocks, seed, mean)
    scheme = EIGHT_BITS if wide else scheme_of(kind.name)
    matrix = read_blocks(rows, kind.name, scheme)
    values = torch.from_numpy(gguf.dequantize(rows, kind))
    check_value(list(values.shape), scheme, matrix)
    torch.testing.assert_close(matrix.dequantize(), values, rtol=1e-6, atol=2e-6 * float(values.abs().max()))


@pytest.mark.parametrize("kind", [Kind.Q8_0, Kind.Q4_0, Kind.Q4_1])
@pytest.mark.parametrize("value", [0.0, 0.25, -2.0])
def test_blocks_of_one_value(kind: Kind, value: float) -> None:
    rows = gguf.quantize(np.full((3, 64), value, np.float32), kind)
    matrix = read_blocks(rows, kind.name, scheme_of(kind.name))
    check_value([3, 64], scheme_of(kind.name), matrix)
    torch.testing.assert_close(matrix.dequantize(), torch.from_numpy(gguf.dequantize(rows, kind)))


def test_what_16_bits_cannot_tell_apart_is_one_value() -> None:
    """So that no zero is infinite there."""
    rows = draw(Kind.Q4_1, 4, 2, 0, mean=3000.0)
    matrix = read_blocks(rows, "Q4_1", scheme_of("Q4_1"))
    assert bool(matrix.zeros.half().isfinite().all())
    torch.testing.assert_close(
        matrix.dequantize(), torch.from_numpy(gguf.dequantize(rows, Kind.Q4_1)), rtol=3e-4, atol=0
    )


@pytest.mark.parametrize("kind", ROUNDED)
def test_other_types_are_rounded_to_8_bits(kind: Kind) -> None:
    """By a 127th of a group's largest value, at most half."""
    rows = draw(kind, 6, 3, 0)
    values = torch.from_numpy(gguf.dequantize(rows, kind))
    matrix = read_blocks(rows, kind.name, scheme_of(kind.name))
    check_value(list(values.shape), EIGHT_BITS, matrix)
    groups = values.view(6, -1, 32)
    off = (matrix.dequantize() - values).abs().view_as(groups)
    assert bool((off <= groups.abs().amax(-1, keepdim=True) / 127 * 0.501).all())


def test_a_large_matrix_is_read_in_parts() -> None:
    rows = random_blocks(Kind.Q4_K, (300, 1 << 15), 0)
    matrix = read_blocks(rows, "Q4_K", scheme_of("Q4_K"))
    last = read_blocks(rows[-2:], "Q4_K", scheme_of("Q4_K"))
    for whole, part in zip(matrix[:3], last[:3], strict=True):
        assert torch.equal(whole[-2:], part)
