"""Cross-attention in Triton equals plain torch, over any rows of a buffer."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paged_batches import uploading_to

from unifiedserve import attention
from unifiedserve.attention import CrossSpan

operators = pytest.importorskip("unifiedserve.device.triton.operators", reason="no Triton")
plans = pytest.importorskip("unifiedserve.device.triton.attention_plan")

ROWS = 2 * plans.PART_KEYS


@settings(max_examples=4)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, ROWS)), min_size=1, max_size=2),
    heads=st.sampled_from([(4, 4), (6, 2)]),
    seed=st.integers(0, 2**32),
)
def test_equals_plain_torch(
    device: torch.device, lengths: list[tuple[int, int]], heads: tuple[int, int], seed: int
) -> None:
    """Rows may serve several spans; those that serve none hold NaN."""
    random = torch.Generator().manual_seed(seed)
    q_heads, kv_heads = heads
    buffer = torch.randn(ROWS, 2, kv_heads, 16, generator=random)
    spans = [CrossSpan(0, n, torch.randperm(ROWS, generator=random)[:m]) for n, m in lengths]
    unused = torch.ones(ROWS, dtype=torch.bool)
    unused[torch.cat([span.rows for span in spans])] = False
    buffer[unused] = torch.nan
    q = torch.randn(sum(n for n, _ in lengths), q_heads, 16, generator=random)
    expected = attention.cross_attention(q, buffer[:, 0], buffer[:, 1], spans, 0.25)
    attend = operators.TritonAttention(uploading_to(device)).of_spans(spans, q_heads // kv_heads)
    keys, values = buffer.to(device)[:, None].unbind(2)
    out = attend(q.to(device), keys, values, 0.25)
    torch.testing.assert_close(out.cpu(), expected, rtol=2e-5, atol=2e-5)
