"""Codes in words."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from stored_weights import words

from unifiedserve.quantization.packing import unpack


@given(
    rows=st.integers(1, 5),
    count=st.integers(1, 3),
    bits=st.sampled_from([4, 8]),
    turned=st.booleans(),
    seed=st.integers(0, 99),
)
def test_what_was_packed_comes_back(rows: int, count: int, bits: int, turned: bool, seed: int) -> None:
    """In whatever order the words lie in memory."""
    codes = np.random.default_rng(seed).integers(0, 2**bits, (rows, count * 32 // bits))
    packed = torch.from_numpy(words(codes, bits))
    packed = packed.T.contiguous().T if turned else packed
    unpacked = unpack(packed, bits)
    assert unpacked.dtype == torch.uint8
    assert unpacked.tolist() == codes.tolist()
