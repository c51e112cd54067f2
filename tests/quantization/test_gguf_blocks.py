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

from unifiedserve.quantization.gguf_blocks import KINDS, read_blocks, scheme_of
from unifiedserve.quantization.scheme import Scheme

EXACT = [Kind[name] for name in KINDS]
#: schemes that types may take beside others
FINER = [Scheme(8, 32), Scheme(8, 16)]


def draw(kind: Kind, outputs: int, blocks: int, seed: int, mean: float = 0.0) -> np.ndarray:
    values = np.random.default_rng(seed).normal(mean, 0.02, (outputs, blocks * gguf.GGML_QUANT_SIZES[kind][0]))
    return stored(values.astype(np.float32), kind, seed)


@given(
    kind=st.sampled_from(EXACT),
    outputs=st.integers(1, 5),
    blocks=st.integers(1, 4),
    finer=st.sampled_from([None, *FINER]),
    mean=st.sampled_from([0.0, 0.5, -30.0]),
    seed=st.integers(0, 99),
)
def test_codes_are_kept(kind: Kind, outputs: int, blocks: int, finer: Scheme | None, mean: float, seed: int) -> None:
    """Also where types of fewer bits are to lie beside others."""
    rows = draw(kind, outputs, blocks, seed, mean)
    own = scheme_of(kind.name)
    scheme = own if finer is None else Scheme(8, min(finer.group, own.group))
    matrix = read_blocks(rows, kind.name, scheme)
    values = torch.from_numpy(gguf.dequantize(rows, kind))
    check_value(list(values.shape), scheme, matrix)
    torch.testing.assert_close(matrix.dequantize(), values, rtol=1e-6, atol=2e-6 * float(values.abs().max()))


@pytest.mark.parametrize("kind", [Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1])
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


def test_a_large_matrix_is_read_in_parts() -> None:
    rows = random_blocks(Kind.Q4_K, (300, 1 << 15), 0)
    matrix = read_blocks(rows, "Q4_K", scheme_of("Q4_K"))
    last = read_blocks(rows[-2:], "Q4_K", scheme_of("Q4_K"))
    for whole, part in zip(matrix[:3], last[:3], strict=True):
        assert torch.equal(whole[-2:], part)
