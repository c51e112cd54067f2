"""A plan that is made on the device is the host's, to the bit, and rows without a sequence touch nothing."""

import dataclasses
import importlib
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from paged_batches import Sizes, random_case, uploading_to

from unifiedserve.attention import AttentionRules

paged = pytest.importorskip("unifiedserve.device.triton.paged_attention", reason="no Triton")
plans = pytest.importorskip("unifiedserve.device.triton.attention_plan")
stores = pytest.importorskip("unifiedserve.device.triton.store_kv")

PART = plans.PART_KEYS


@settings(max_examples=10)
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
    out = paged.paged_attention(q.to(device), *cache, plan, 0.25, AttentionRules(window))
    by_host = plans.AttentionPlan.of_batch(case.batch(), 2, uploading_to(device))
    expected = paged.paged_attention(case.q.to(device), *cache, by_host, 0.25, AttentionRules(window))
    assert torch.equal(out[rows], expected[: len(rows)])


@pytest.fixture
def counted(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the instructions that read and write memory, of all programs."""
    if device.type != "cpu":
        pytest.skip("only the interpreter tells what a program does")
    builder = importlib.import_module("triton.runtime.interpreter").InterpreterBuilder
    counts = Counter[str]()
    for name in ("create_masked_load", "create_masked_store"):
        original = getattr(builder, name)

        def instruction(self: Any, *arguments: Any, name: str = name, original: Any = original, **more: Any) -> Any:
            counts[name] += 1
            return original(self, *arguments, **more)

        monkeypatch.setattr(builder, name, instruction)
    return counts


@pytest.mark.parametrize("past", [None, 7, PART + 3])
def test_programs_beyond_a_row_read_one_number_and_write_none(
    device: torch.device, counted: Counter[str], past: int | None
) -> None:
    """However long the contexts are that a graph is for."""
    case = random_case([(past or 0, 1)], [False], Sizes(4, 2, 16, 16), torch.float32, torch.Generator().manual_seed(0))
    lengths = torch.tensor([0 if past is None else past + 1], dtype=torch.int32)
    used, found = -(-int(lengths) // PART), list[tuple[int, int]]()
    for parts in (2, 5):
        table = torch.zeros(1, parts * PART // 16, dtype=torch.int32)
        table[0, : len(case.spans[0].pages)] = torch.tensor(case.spans[0].pages)
        counted.clear()
        plan = plans.AttentionPlan.of_rows(lengths, table, parts * PART, 2)
        paged.paged_attention(case.q, case.keys, case.values, plan, 0.25)
        found.append((counted["create_masked_load"], counted["create_masked_store"]))
    (few_loads, few_stores), (many_loads, many_stores) = found
    assert used <= 2
    assert many_loads - few_loads == 3 * 2  # programs of two heads
    assert many_stores == few_stores


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("context", [1, PART, 2 * PART + 1])
def test_partial_results_are_as_large_as_foretold(device: torch.device, rows: int, context: int) -> None:
    """Nothing is written behind them, nor read of what no part has written."""
    heads, head_dim = 4, 16
    lengths = [(context - 1, 1)] * rows
    sizes = Sizes(heads, 2, head_dim, 16)
    case = random_case(lengths, [False] * rows, sizes, torch.float32, torch.Generator().manual_seed(0))
    table = torch.tensor([span.pages for span in case.spans], dtype=torch.int32)
    needed = plans.scratch_of_rows(rows, context, heads, head_dim)
    scratch = torch.full((needed + 64,), torch.nan, device=device)
    scratch[needed:] = 5
    length = torch.full((rows,), context, dtype=torch.int32)
    plan = plans.AttentionPlan.of_rows(length.to(device), table.to(device), context, 2, scratch[:needed])
    assert plans.partial_floats(plan.partial_rows, heads, head_dim) == needed
    q, keys, values = (tensor.to(device) for tensor in (case.q, case.keys, case.values))
    out = paged.paged_attention(q, keys, values, plan, 0.25)
    torch.testing.assert_close(out.cpu(), case.expected(0.25), rtol=2e-5, atol=2e-5)
    assert torch.equal(scratch[needed:].cpu(), torch.full((64,), 5.0))
    assert context <= PART or not scratch[:needed].isnan().any()
    short = dataclasses.replace(plan, scratch=scratch[: needed - 1])
    with pytest.raises(ValueError, match=f"take {needed} numbers, but the plan's scratch has {needed - 1}"):
        paged.paged_attention(q, keys, values, short, 0.25)


def test_a_plan_of_the_host_is_one_upload(device: torch.device) -> None:
    """Its arrays begin at multiples of 16 bytes, because kernels would be compiled anew for others."""
    uploads = list[torch.Tensor]()

    def upload(host: torch.Tensor) -> torch.Tensor:
        uploads.append(host)
        return host.to(device)

    lengths = [(3 * PART, 1), (5, 7), (PART, 1)]
    case = random_case(lengths, [False] * 3, Sizes(6, 2, 16, 16), torch.float32, torch.Generator().manual_seed(0))
    plan = plans.AttentionPlan.of_batch(case.batch(), 3, upload)
    assert len(uploads) == 1
    assert uploads[0].is_contiguous()
    assert plan.singles == 6
    arrays = (plan.parts, plan.parts[plan.singles :], plan.merges, plan.limits, plan.pages)
    assert [array.dtype for array in arrays] == [torch.int32] * 5
    assert [array.data_ptr() % 16 for array in arrays] == [0] * 5
    assert all(array.is_contiguous() for array in arrays)
    assert plan.limits.tolist() == [3 * PART + 1, *range(6, 13), PART + 1]
    assert plan.pages.tolist() == case.batch().kv_page_indices.tolist()
    assert plan.parts[:, 4:6].tolist() == [
        *([part * PART, min((part + 1) * PART, 3 * PART + 1)] for part in range(4)),
        [0, PART],
        [PART, PART + 1],
        [0, 12],
    ]
    assert plan.merges.tolist() == [[0, 0, 1, 4], [8, 4, 1, 2]]


def test_parts_may_have_another_size(device: torch.device) -> None:
    case = random_case([(3 * PART, 1)], [False], Sizes(6, 2, 16, 16), torch.float32, torch.Generator().manual_seed(0))
    plan = plans.AttentionPlan.of_batch(case.batch(), 3, uploading_to(device), part_keys=2 * PART)
    assert len(plan.parts) == 2
    q, keys, values = (tensor.to(device) for tensor in (case.q, case.keys, case.values))
    out = paged.paged_attention(q, keys, values, plan, 0.25)
    torch.testing.assert_close(out.cpu(), case.expected(0.25), rtol=2e-5, atol=2e-5)


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
