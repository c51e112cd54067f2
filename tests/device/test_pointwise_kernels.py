"""Norm, gate and rotation of heads equal torch's in float32, rounded once; no bit depends on the batch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import rms_norm, silu

norms = pytest.importorskip("unifiedserve.device.triton.add_rms_norm", reason="no Triton")
gates = pytest.importorskip("unifiedserve.device.triton.silu_mul")
rotations = pytest.importorskip("unifiedserve.device.triton.rotate_heads")

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
EPSILON = 1e-6
dtypes = st.sampled_from(list(TOLERANCE))
some = settings(max_examples=25)


@some
@given(
    rows=st.integers(0, 5),
    hidden=st.integers(1, 300),
    dtype=dtypes,
    has_delta=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_add_rms_norm(
    device: torch.device, rows: int, hidden: int, dtype: torch.dtype, has_delta: bool, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    residual, delta = (torch.randn(rows, hidden, generator=random) * 3 for _ in range(2))
    weight = torch.randn(hidden, generator=random).to(dtype)
    delta = delta.to(dtype) if has_delta else torch.zeros(rows, hidden)
    expected = residual + delta.float()
    changed = residual.to(device)
    normed = norms.add_rms_norm(changed, delta.to(device) if has_delta else None, weight.to(device), EPSILON)
    assert normed.dtype == dtype
    assert torch.equal(changed.cpu(), expected)
    expected = rms_norm(expected, (hidden,), weight.float(), EPSILON)
    torch.testing.assert_close(normed.cpu().float(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@some
@given(rows=st.integers(0, 4), intermediate=st.integers(1, 1200), dtype=dtypes, seed=st.integers(0, 2**32))
def test_silu_mul(device: torch.device, rows: int, intermediate: int, dtype: torch.dtype, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    gate_up = (torch.randn(rows, 2 * intermediate, generator=random) * 3).to(dtype)
    gate, up = gate_up.float().chunk(2, dim=1)
    found = gates.silu_mul(gate_up.to(device))
    assert found.dtype == dtype
    torch.testing.assert_close(found.cpu().float(), silu(gate) * up, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@some
@given(rows=st.integers(0, 4), intermediate=st.integers(1, 1200), added=st.integers(0, 40), dtype=dtypes)
def test_silu_mul_has_zeros_behind(
    device: torch.device, rows: int, intermediate: int, added: int, dtype: torch.dtype
) -> None:
    gate_up = torch.randn(rows, 2 * intermediate).to(device, dtype)
    wide = gates.silu_mul(gate_up, intermediate + added)
    assert torch.equal(wide[:, :intermediate], gates.silu_mul(gate_up))
    assert torch.equal(wide[:, intermediate:], wide.new_zeros(rows, added))


@some
@given(
    rows=st.integers(0, 5),
    heads=st.integers(1, 19),
    others=st.integers(0, 3),
    half=st.integers(1, 70),
    dtype=dtypes,
    seed=st.integers(0, 2**32),
)
def test_rotate_heads(
    device: torch.device, rows: int, heads: int, others: int, half: int, dtype: torch.dtype, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    wide = torch.full((rows, heads + others, 2 * half), torch.nan, dtype=dtype)
    wide[:, :heads] = torch.randn(rows, heads, 2 * half, generator=random).to(dtype)
    angles = torch.rand(rows, half, generator=random) * 100
    cosine, sine = angles.cos(), angles.sin()
    first, second = wide[:, :heads].float().chunk(2, dim=-1)
    c, s = cosine[:, None], sine[:, None]
    expected = torch.cat([first * c - second * s, second * c + first * s], dim=-1)
    found = wide.to(device)
    rotations.rotate_heads(found[:, :heads], cosine.to(device), sine.to(device))
    found = found.cpu()
    torch.testing.assert_close(found[:, :heads].float(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert found[:, heads:].isnan().all()


def test_no_bit_depends_on_the_batch(device: torch.device) -> None:
    x, weight = torch.randn(5, 200, device=device), torch.randn(100, device=device)
    gated, normed = gates.silu_mul(x), norms.add_rms_norm(x[:, :100].contiguous(), None, weight, EPSILON)
    for row in range(5):
        assert torch.equal(gates.silu_mul(x[row : row + 1]), gated[row : row + 1])
        alone = norms.add_rms_norm(x[row : row + 1, :100].contiguous(), None, weight, EPSILON)
        assert torch.equal(alone, normed[row : row + 1])


def test_what_does_not_fit_is_refused(device: torch.device) -> None:
    residual, weight = torch.zeros(3, 8, device=device), torch.ones(8, device=device)
    for bad in (
        (residual.half(), None, weight),
        (residual[:, ::2], None, weight[:4]),
        (residual, residual[:2], weight),
        (residual, torch.zeros(8, 3, device=device).T, weight),
        (residual, None, weight[:4]),
    ):
        with pytest.raises(ValueError, match="residual"):
            norms.add_rms_norm(*bad, EPSILON)
    for gate_up, width in ((residual[:, :3].contiguous(), None), (residual[:, ::2], None), (residual, 3)):
        with pytest.raises(ValueError, match="gate and up"):
            gates.silu_mul(gate_up, width)
    heads, angles = torch.zeros(3, 2, 8, device=device), torch.zeros(3, 4, device=device)
    for turned, cosine, sine in (
        (heads, angles[:, :2], angles),
        (heads, angles, angles[:2]),
        (heads[..., :7], angles, angles),
        (heads[..., ::2], angles[:, :2].contiguous(), angles[:, :2].contiguous()),
        (heads, angles.T.contiguous().T, angles),
    ):
        with pytest.raises(ValueError, match="rotations"):
            rotations.rotate_heads(turned, cosine, sine)
