"""The encoder's kernels equal the same sums in float64, with every instruction set of this machine."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from unifiedserve import _core

DTYPES = [torch.float32, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
POOL = _core.ThreadPool(3)
TILE = 528  # queries at once

Groups = list[tuple[int, int, int]]

pytestmark = pytest.mark.usefixtures("instruction_set")
per_example = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def attend(qkv: Tensor, cosine: Tensor, sine: Tensor, scale: float, groups: Groups) -> Tensor:
    """[rows, heads, head_dim], NaN where no sequence is, of qkv [rows, 3, heads, head_dim]."""
    out = torch.full_like(qkv[:, 0], torch.nan, memory_format=torch.contiguous_format)
    _core.attend_sequences(POOL, qkv, cosine, sine, groups, out, scale)
    return out


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """As the kernel: by float32 angles, rounded to the dtype of x [rows, heads, head_dim]."""
    first, second = x.double().chunk(2, -1)
    c, s = cosine[:, None].double(), sine[:, None].double()
    return torch.cat([first * c - second * s, second * c + first * s], -1).to(x.dtype).double()


def exact(qkv: Tensor, cosine: Tensor, sine: Tensor, scale: float, groups: Groups) -> Tensor:
    q, k, v = rotated(qkv[:, 0], cosine, sine), rotated(qkv[:, 1], cosine, sine), qkv[:, 2].double()
    out = torch.full_like(v, torch.nan)
    for start, sequences, length in groups:
        for first in range(start, start + sequences * length, length):
            rows = slice(first, first + length)
            weights = (torch.einsum("nhd,mhd->hnm", q[rows], k[rows]) * scale).softmax(-1)
            out[rows] = torch.einsum("hnm,mhd->nhd", weights, v[rows])
    return out


def check(groups: Groups, rows: int, heads: int, head_dim: int, dtype: torch.dtype, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    qkv = torch.randn(rows, 3, heads, head_dim, generator=random).to(dtype)
    angles = torch.rand(rows, head_dim // 2, generator=random) * 7
    before = qkv.clone()
    arguments = qkv, angles.cos(), angles.sin(), head_dim**-0.5, groups
    out = attend(*arguments)
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(out.double(), exact(*arguments), rtol=tolerance, atol=tolerance, equal_nan=True)
    assert torch.equal(qkv, before)


@per_example
@given(
    shapes=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 150)), min_size=1, max_size=4),
    gap=st.integers(0, 2),
    heads=st.integers(1, 4),
    half=st.integers(1, 70),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**32),
)
def test_attention(
    shapes: Sequence[tuple[int, int]], gap: int, heads: int, half: int, dtype: torch.dtype, seed: int
) -> None:
    """Sequences of any number and length, with rows of none before and behind them."""
    groups, row = [], gap
    for sequences, length in shapes:
        groups.append((row, sequences, length))
        row += sequences * length
    check(groups, row + gap, heads, 2 * half, dtype, seed)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 63, 64, 65, 66, 67, 132, 133, TILE - 1, TILE, TILE + 1, 2 * TILE])
@pytest.mark.parametrize("dtype", DTYPES)
def test_lengths_around_blocks_and_tiles(length: int, dtype: torch.dtype) -> None:
    check([(0, 1, length)], length, 2, 20, dtype, length)


@pytest.mark.parametrize("head_dim", [2, 14, 16, 18, 30, 32, 34, 62, 64, 72, 80, 96, 128, 256])
@pytest.mark.parametrize("dtype", DTYPES)
def test_head_sizes(head_dim: int, dtype: torch.dtype) -> None:
    check([(0, 2, 70), (140, 1, 9)], 149, 3, head_dim, dtype, head_dim)


def test_large_scores_do_not_overflow() -> None:
    qkv = torch.randn(200, 3, 1, 32, generator=torch.Generator().manual_seed(0)) * 5  # scores of some hundred
    angles = torch.zeros(200, 16)
    arguments = qkv, angles.cos(), angles.sin(), 1.0, [(0, 1, 200)]
    torch.testing.assert_close(attend(*arguments).double(), exact(*arguments), rtol=1e-3, atol=1e-3)


def test_a_sequence_does_not_depend_on_the_others() -> None:
    qkv, angles = torch.randn(900, 3, 2, 40), torch.rand(900, 20)
    together = attend(qkv, angles.cos(), angles.sin(), 0.2, [(0, 5, 60), (300, 1, 600)])
    for start, length in ((60, 60), (300, 600)):
        rows = slice(start, start + length)
        alone = attend(qkv[rows], angles[rows].cos(), angles[rows].sin(), 0.2, [(0, 1, length)])
        assert torch.equal(alone, together[rows])


@pytest.mark.parametrize(
    "group", [(-1, 1, 2), (9, 1, 1), (0, 5, 2), (3, 2, 3), (0, -1, 2), (0, 1, 0), (0, 2**62, 4), (0, 1, 2**62)]
)
def test_groups_outside_the_rows_are_refused(group: tuple[int, int, int]) -> None:
    qkv, angles = torch.zeros(8, 3, 1, 4), torch.zeros(8, 2)
    with pytest.raises(ValueError, match="are not within 8 rows"):
        attend(qkv, angles, angles, 1.0, [(0, 2, 4), group])


def test_heads_need_two_halves() -> None:
    with pytest.raises(ValueError, match="head_dim must be even, got 3"):
        attend(torch.zeros(8, 3, 1, 3), torch.zeros(8, 1), torch.zeros(8, 1), 1.0, [(0, 1, 8)])


@per_example
@given(rows=st.integers(0, 50), width=st.integers(1, 300), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 2**32))
def test_rms_norm(rows: int, width: int, dtype: torch.dtype, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    x, weight = (torch.randn(*shape, generator=random).to(dtype) for shape in ((rows, width), (width,)))
    out = torch.full_like(x, torch.nan)
    _core.rms_norm(POOL, x, weight, 1e-6, out)
    exact = torch.nn.functional.rms_norm(x.double(), (width,), weight.double(), 1e-6)
    error = 2**-8 if dtype == torch.bfloat16 else 1e-6  # half a unit in the last place: rounded once
    torch.testing.assert_close(out.double(), exact, rtol=error * 1.01, atol=1e-30)
