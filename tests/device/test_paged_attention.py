"""Paged attention in Triton equals plain torch, whatever the pages and chunks, and not a bit depends on the batch."""

import dataclasses
import itertools
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from paged_batches import Case, Sizes, random_case, uploading_to
from torch import Tensor

from unifiedserve.attention import PLAIN, AttentionRules

paged = pytest.importorskip("unifiedserve.device.triton.paged_attention", reason="no Triton")
plans = pytest.importorskip("unifiedserve.device.triton.attention_plan")

PART = plans.PART_KEYS
TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
HEADS = [(4, 4), (6, 2), (4, 1), (14, 2)]
RULES = [PLAIN, AttentionRules(chunk=75, cap=2.0), AttentionRules(sinks=torch.arange(6.0))]


def every_pair(*choices: list[Any]) -> list[Any]:
    """Return all combinations of three choices each, of which those that always run hold every pair (Latin square)."""
    found = []
    for numbers in itertools.product(range(3), repeat=3):
        marks = [pytest.mark.long] if sum(numbers) % 3 else []
        found.append(pytest.param(*(of[number] for of, number in zip(choices, numbers, strict=True)), marks=marks))
    return found


@pytest.fixture(params=DTYPES, ids=str, scope="module")
def dtype(request: pytest.FixtureRequest, device: torch.device) -> torch.dtype:
    if device.type == "cpu" and request.param == torch.bfloat16:
        pytest.skip("Triton's interpreter multiplies no bfloat16")
    return request.param


def attend(case: Case, device: torch.device, rules: AttentionRules, *chosen: int) -> Tensor:
    """Run the kernel on all or the chosen sequences."""
    groups = case.q.shape[1] // case.keys.shape[2]
    rows = paged.tile_rows(case.q.dtype, case.q.shape[2], paged.WGMMA_SHARED)
    plan = plans.AttentionPlan.of_batch(case.batch(*chosen), groups, uploading_to(device), rows)
    q = torch.cat([case.q[case.rows(number)] for number in chosen]) if chosen else case.q
    keys, values = case.keys.to(device), case.values.to(device)
    assert keys.stride() == case.keys.stride() or device.type != "cpu"
    return paged.paged_attention(q.to(device), keys, values, plan, scale(case), rules).cpu()


def scale(case: Case) -> float:
    return case.q.shape[2] ** -0.5


@settings(max_examples=4)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 2 * PART), st.integers(1, 40)), min_size=1, max_size=3),
    limited=st.lists(st.booleans(), min_size=3, max_size=3),
    heads=st.sampled_from(HEADS),
    head_dim=st.sampled_from([8, 16, 72, 80, 96]),
    page_size=st.sampled_from([1, 2, 16, 64]),
    window=st.none() | st.integers(1, 2 * PART),
    seed=st.integers(0, 2**32),
)
@example(  # decode beside prefill, over several parts
    lengths=[(3 * PART - 1, 1), (0, 40), (PART - 1, 1)],
    limited=[False] * 3,
    heads=(6, 2),
    head_dim=16,
    page_size=16,
    window=None,
    seed=0,
)
@example(  # a window that leaves parts without a key, and limits behind the last tile
    lengths=[(3 * PART, 1), (20, 70)],
    limited=[False, True, False],
    heads=(4, 4),
    head_dim=16,
    page_size=16,
    window=100,
    seed=1,
)
def test_equals_plain_torch(
    device: torch.device,
    dtype: torch.dtype,
    lengths: list[tuple[int, int]],
    limited: list[bool],
    heads: tuple[int, int],
    head_dim: int,
    page_size: int,
    window: int | None,
    seed: int,
) -> None:
    sizes = Sizes(*heads, head_dim, page_size)
    case = random_case(lengths, limited, sizes, dtype, torch.Generator().manual_seed(seed))
    rules = AttentionRules(window)
    out = attend(case, device, rules)
    expected = case.expected(scale(case), rules)
    torch.testing.assert_close(out.float(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@settings(max_examples=4)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 2 * PART), st.integers(1, 40)), min_size=1, max_size=3),
    heads=st.sampled_from(HEADS),
    window=st.none() | st.integers(1, 2 * PART),
    chunk=st.none() | st.integers(1, 2 * PART),
    cap=st.none() | st.sampled_from([0.5, 3.0, 50.0]),
    sinks=st.none() | st.sampled_from([-3.0, 0.0, 5.0]),
    seed=st.integers(0, 2**32),
)
@example([(3 * PART - 1, 1), (0, 40)], (6, 2), None, None, 3.0, 2.0, 0)  # sinks count once, in any number of parts
@example([(3 * PART - 1, 1), (0, 40)], (6, 2), 100, None, None, 200.0, 0)
@example([(3 * PART + 40, 1), (PART, 70)], (6, 2), None, PART + 30, None, None, 0)
@example([(3 * PART + 40, 1), (PART, 70)], (6, 2), 60, 70, 50.0, 1.0, 0)
def test_caps_sinks_and_chunks(
    device: torch.device,
    dtype: torch.dtype,
    lengths: list[tuple[int, int]],
    heads: tuple[int, int],
    window: int | None,
    chunk: int | None,
    cap: float | None,
    sinks: float | None,
    seed: int,
) -> None:
    case = random_case(lengths, [False] * 3, Sizes(*heads, 16, 16), dtype, torch.Generator().manual_seed(seed))
    of_heads = None if sinks is None else sinks + torch.arange(heads[0]) / 4
    expected = case.expected(scale(case), AttentionRules(window, chunk, cap, of_heads))
    moved = None if of_heads is None else of_heads.to(device, dtype)
    out = attend(case, device, AttentionRules(window, chunk, cap, moved))
    torch.testing.assert_close(out.float(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    for number in range(len(lengths)):
        alone = attend(case, device, AttentionRules(window, chunk, cap, moved), number)
        assert torch.equal(alone, out[case.rows(number)])


def test_the_key_that_counts_may_be_in_the_last_of_many_parts(device: torch.device) -> None:
    """So many that they are merged in several blocks."""
    case = random_case([(17 * PART, 1)], [False], Sizes(2, 1, 16, 16), torch.float32, torch.Generator().manual_seed(0))
    case.q[:] = 2 * case.keys[case.spans[0].pages[-1], 0]
    torch.testing.assert_close(attend(case, device, PLAIN), case.expected(scale(case)), rtol=2e-5, atol=2e-5)


@settings(max_examples=3)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 2 * PART), st.integers(1, 30)), min_size=2, max_size=3),
    limited=st.lists(st.booleans(), min_size=3, max_size=3),
    window=st.none() | st.integers(1, PART),
    seed=st.integers(0, 2**32),
)
@example(lengths=[(2 * PART + 7, 1), (0, 30), (5, 3)], limited=[False, True, False], window=None, seed=0)
def test_no_bit_depends_on_the_batch(
    device: torch.device,
    dtype: torch.dtype,
    lengths: list[tuple[int, int]],
    limited: list[bool],
    window: int | None,
    seed: int,
) -> None:
    case = random_case(lengths, limited, Sizes(6, 2, 16, 16), dtype, torch.Generator().manual_seed(seed))
    rules = AttentionRules(window)
    together = attend(case, device, rules)
    for number in range(len(lengths)):
        assert torch.equal(attend(case, device, rules, number), together[case.rows(number)])


@pytest.mark.parametrize(("window", "rows", "rules"), every_pair([None, 20, 100], [32, 64, 128], RULES))
def test_other_sizes_compute_the_same(
    device: torch.device, window: int | None, rows: int, rules: AttentionRules
) -> None:
    """Blocks that are seen whole may go without masks, to the bit."""
    lengths = [(2 * PART + 40, 1), (90, 45), (0, 1)]
    sizes = Sizes(6, 2, 24, 16)
    case = random_case(lengths, [False, True, False], sizes, torch.float32, torch.Generator().manual_seed(0))
    plan = plans.AttentionPlan.of_batch(case.batch(), 3, uploading_to(device), rows, 2 * PART)
    q, keys, values = (tensor.to(device) for tensor in (case.q, case.keys, case.values))
    rules = rules._replace(window=window)
    on_device = rules._replace(sinks=None if rules.sinks is None else rules.sinks.to(device))
    masked, split = (
        paged.paged_attention(q, keys, values, plan, scale(case), on_device, paged.Blocks(32, 4, 2, split))
        for split in (False, True)
    )
    torch.testing.assert_close(split.cpu(), case.expected(scale(case), rules), rtol=2e-5, atol=2e-5)
    assert torch.equal(masked, split)


def test_tokens_that_are_not_wanted_are_left_out(device: torch.device) -> None:
    """Of sequences with none, not even a row is there."""
    case = random_case([(5, 30), (20, 1), (0, 7)], [False] * 3, Sizes(6, 2, 16, 16), torch.float32, torch.Generator())
    expected = case.expected(scale(case))
    batch = dataclasses.replace(case.batch(), qo_indptr=torch.tensor([0, 2, 2, 3], dtype=torch.int32))
    plan = plans.AttentionPlan.of_batch(batch, 3, uploading_to(device))
    rows = [28, 29, 37]
    q, keys, values = (tensor.to(device) for tensor in (case.q[rows], case.keys, case.values))
    out = paged.paged_attention(q, keys, values, plan, scale(case))
    torch.testing.assert_close(out.cpu(), expected[rows], rtol=1e-5, atol=1e-5)

    batch = dataclasses.replace(batch, qo_indptr=torch.zeros(4, dtype=torch.int32))
    plan = plans.AttentionPlan.of_batch(batch, 3, uploading_to(device))
    assert paged.paged_attention(q[:0], keys, values, plan, scale(case)).shape == (0, 6, 16)


def test_what_does_not_fit_is_refused(device: torch.device) -> None:
    case = random_case([(0, 3)], [False], Sizes(4, 2, 16, 16), torch.float32, torch.Generator())
    plan = plans.AttentionPlan.of_batch(case.batch(), 2, uploading_to(device))
    q, keys, values = (tensor.to(device) for tensor in (case.q, case.keys, case.values))
    for bad in ((q.half(), keys, values), (q[:2], keys, values), (q[:, :2], keys, values), (q, keys, values[:, :8])):
        with pytest.raises(ValueError, match=r"must be one float|do not fit|must be contiguous"):
            paged.paged_attention(*bad, plan, 1.0)
