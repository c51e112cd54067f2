"""A plan that is made on the device is the host's, to the bit, and rows without a sequence touch nothing."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from paged_batches import Sizes, random_case

paged = pytest.importorskip("unifiedserve.device.triton.paged_attention", reason="no Triton")
plans = pytest.importorskip("unifiedserve.device.triton.attention_plan")
stores = pytest.importorskip("unifiedserve.device.triton.store_kv")

PART = plans.PART_KEYS


@settings(max_examples=10, deadline=None)
@given(
    pasts=st.lists(st.none() | st.integers(0, 3 * PART - 1), min_size=1, max_size=4),
    more=st.integers(0, 2 * PART),
    window=st.none() | st.integers(1, 2 * PART),
    seed=st.integers(0, 2**32),
)
@example(pasts=[PART - 1, None, PART, 0], more=0, window=None, seed=0)
@example(pasts=[None, None], more=0, window=None, seed=0)
def test_attention_is_that_of_a_plan_by_the_host(
    device: torch.device, pasts: list[int | None], more: int, window: int | None, seed: int
) -> None:
    """None is a row without a sequence; the graph may be for contexts that are `more` tokens longer."""
    sizes = Sizes(4, 2, 16, 16)
    there = [(past, 1) for past in pasts if past is not None] or [(0, 1)]
    case = random_case(there, [False] * len(there), sizes, torch.float32, torch.Generator().manual_seed(seed))
    rows = [row for row, past in enumerate(pasts) if past is not None]
    lengths = torch.tensor([0 if past is None else past + 1 for past in pasts], dtype=torch.int32)
    context = max(1, int(lengths.max())) + more
    table = torch.full((len(pasts), -(-context // sizes.page_size)), 10**6, dtype=torch.int32)
    for row, span in zip(rows, case.spans, strict=False):
        table[row, : len(span.pages)] = torch.tensor(span.pages)
    q = torch.full((len(pasts), sizes.q_heads, sizes.head_dim), torch.nan)
    q[rows] = case.q[: len(rows)]

    cache = case.keys.to(device), case.values.to(device)
    plan = plans.AttentionPlan.of_rows(lengths.to(device), table.to(device), context, 2)
    out = paged.paged_attention(q.to(device), *cache, plan, 0.25, window)
    by_host = plans.AttentionPlan.of_batch(case.batch(), 2, device)
    expected = paged.paged_attention(case.q.to(device), *cache, by_host, 0.25, window)
    assert torch.equal(out[rows], expected[: len(rows)])


def test_a_token_without_a_slot_is_stored_nowhere(device: torch.device) -> None:
    heads, head_dim = 4, 16
    cache = torch.zeros(2, 3, 2, 8, 1, head_dim, device=device)
    keys, values = cache[:, 1, 0], cache[:, 1, 1]
    qkv = torch.ones(2, (heads + 2) * head_dim, device=device)
    turned = torch.zeros(2, head_dim, device=device)
    stores.store_kv(qkv, turned + 1, turned, keys, values, torch.tensor([-1, 11], device=device))
    expected = torch.zeros_like(cache)
    expected[1, 1, :, 3] = 1
    assert torch.equal(cache, expected)
