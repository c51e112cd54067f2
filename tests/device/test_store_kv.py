"""Rotation, norms and the store of keys and values equal those of transformers and torch; nothing else is written."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paged_batches import Sizes, poisoned_cache
from reference import transformers
from torch import Tensor
from torch.nn.functional import rms_norm

kernel = pytest.importorskip("unifiedserve.device.triton.store_kv", reason="no Triton")

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
EPSILON = 1e-6


def rotations(tokens: int, rotary_dim: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    angles = (torch.rand(tokens, rotary_dim // 2, generator=random) * 100).repeat(1, 2)
    return angles.cos(), angles.sin()


@settings(max_examples=25)
@given(
    tokens=st.integers(1, 6),
    heads=st.sampled_from([(4, 4), (6, 2), (4, 1), (1, 1)]),
    head_and_rotary_dim=st.sampled_from([(16, 16), (16, 8), (24, 24), (72, 36), (80, 20)]),
    page_size=st.sampled_from([1, 2, 16]),
    dtype=st.sampled_from(list(TOLERANCE)),
    has_norms=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_equals_transformers(
    device: torch.device,
    tokens: int,
    heads: tuple[int, int],
    head_and_rotary_dim: tuple[int, int],
    page_size: int,
    dtype: torch.dtype,
    has_norms: bool,
    seed: int,
) -> None:
    random = torch.Generator().manual_seed(seed)
    (q_heads, kv_heads), (head_dim, rotary_dim) = heads, head_and_rotary_dim
    qkv = torch.randn(tokens, (q_heads + 2 * kv_heads) * head_dim, generator=random).to(dtype)
    cosine, sine = rotations(tokens, rotary_dim, random)
    norms = [torch.randn(head_dim, generator=random).to(dtype) for _ in range(2)] if has_norms else []
    pages = -(-tokens // page_size) + 2
    keys, values = poisoned_cache(pages, Sizes(q_heads, kv_heads, head_dim, page_size), dtype)
    slots = torch.randperm(pages * page_size, generator=random)[:tokens]

    wide = qkv.float().view(tokens, -1, head_dim)
    q, k, v = wide.split([q_heads, kv_heads, kv_heads], dim=1)
    if norms:
        q, k = (rms_norm(x, (head_dim,), weight.float(), EPSILON) for x, weight in zip((q, k), norms, strict=True))
    rotate = transformers.models.qwen3_5.modeling_qwen3_5.apply_rotary_pos_emb
    q, k = rotate(q, k, cosine, sine, unsqueeze_dim=1)

    keys, values = keys.to(device), values.to(device)
    arguments = [tensor.to(device) for tensor in (slots, *norms)]
    found = kernel.store_kv(
        qkv.to(device), cosine.to(device), sine.to(device), keys, values, *arguments, epsilon=EPSILON
    )
    keys, values, close = keys.cpu(), values.cpu(), {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    page, offset = slots // page_size, slots % page_size
    torch.testing.assert_close(found.cpu().float(), q, **close)
    torch.testing.assert_close(keys[page, offset].float(), k, **close)
    assert torch.equal(values[page, offset].float(), v)
    assert int(keys.isfinite().sum()) == int(values.isfinite().sum()) == tokens * kv_heads * head_dim


def test_no_bit_depends_on_the_batch(device: torch.device) -> None:
    random = torch.Generator().manual_seed(0)
    qkv = torch.randn(5, 8 * 16, generator=random).to(device)
    cosine, sine = (tensor.to(device) for tensor in rotations(5, 16, random))
    keys, values = (cache.to(device) for cache in poisoned_cache(2, Sizes(4, 2, 16, 4), torch.float32))
    slots = torch.arange(5, device=device)
    weight = torch.rand(16, generator=random).to(device)
    q = kernel.store_kv(qkv, cosine, sine, keys, values, slots, weight, weight, EPSILON)
    stored = keys.clone()
    for row in range(5):
        alone = slice(row, row + 1)
        found = kernel.store_kv(
            qkv[alone], cosine[alone], sine[alone], keys, values, slots[alone], weight, weight, EPSILON
        )
        assert torch.equal(found, q[alone])
    assert torch.equal(keys.nan_to_num(), stored.nan_to_num())


def test_what_does_not_fit_is_refused(device: torch.device) -> None:
    keys, values = (cache.to(device) for cache in poisoned_cache(2, Sizes(4, 2, 16, 4), torch.float32))
    qkv, rotation = torch.zeros(3, 128, device=device), torch.zeros(3, 16, device=device)
    slots, weight = torch.arange(3, device=device), torch.ones(16, device=device)
    for bad in (
        (qkv[:, :64].contiguous(), rotation, rotation, keys, values, slots),
        (qkv, rotation.repeat(1, 2), rotation.repeat(1, 2), keys, values, slots),
        (qkv, rotation[:, ::2], rotation[:, ::2], keys, values, slots),
        (qkv, rotation, rotation, keys, values.mT.contiguous().mT, slots),
        (qkv, rotation, rotation, keys, values[:1], slots),
        (qkv, rotation, rotation, keys, values, slots[:2]),
        (qkv, rotation, rotation, keys, values, slots, weight),
    ):
        with pytest.raises(ValueError, match=r"(does|do) not fit|must be contiguous|must have one|both or not at all"):
            kernel.store_kv(*bad)
