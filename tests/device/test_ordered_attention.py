"""Attention by plans in order: no bit of a token's result depends on its batch, its chunk or who splits its keys."""

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from paged_batches import Case, Sizes, random_case, uploading_to
from torch import Tensor

from unifiedserve.attention import PLAIN, AttentionRules, RaggedBatch, Span

paged = pytest.importorskip("unifiedserve.device.triton.paged_attention", reason="no Triton")
plans = pytest.importorskip("unifiedserve.device.triton.attention_plan")

PART = 64  # keys of a part, as few as a block's
RULES = [PLAIN, AttentionRules(window=70), AttentionRules(chunk=75, cap=2.0), AttentionRules(sinks=torch.arange(4.0))]
DTYPES = [torch.float32, pytest.param(torch.float16, marks=pytest.mark.long), torch.bfloat16]
Step = list[tuple[int, int, int]]  # of which sequences which tokens [start, stop)

pytestmark = pytest.mark.usefixtures("in_order", "short_parts")


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the interpreter take several parts in little time."""
    monkeypatch.setattr(plans, "PART_KEYS", PART)


@pytest.fixture(params=DTYPES, ids=str, scope="module")
def dtype(request: pytest.FixtureRequest, device: torch.device) -> torch.dtype:
    if device.type == "cpu" and request.param == torch.bfloat16:
        pytest.skip("Triton's interpreter multiplies no bfloat16")
    return request.param


def sequences(lengths: list[int], dtype: torch.dtype, seed: int) -> Case:
    """Return sequences all of whose tokens are new."""
    random = torch.Generator().manual_seed(seed)
    return random_case([(0, n) for n in lengths], [False] * len(lengths), Sizes(4, 2, 16, 16), dtype, random)


def attend(case: Case, device: torch.device, step: Step, rules: AttentionRules, in_order: bool = True) -> list[Tensor]:
    """Return what a step gives each of its sequences."""
    spans = [Span(case.spans[number].pages[: -(-stop // 16)], start, stop) for number, start, stop in step]
    upload = uploading_to(device)
    plan = plans.AttentionPlan.of_batch(RaggedBatch.build(spans, 16), 2, upload, part_keys=PART, in_order=in_order)
    out = attend_by(plan, case, device, queries(case, step), rules)
    return list(out.split([stop - start for _, start, stop in step]))


def queries(case: Case, step: Step) -> Tensor:
    return torch.cat([case.q[case.rows(number)][start:stop] for number, start, stop in step])


def attend_by(
    plan: "plans.AttentionPlan", case: Case, device: torch.device, q: Tensor, rules: AttentionRules
) -> Tensor:
    there = rules._replace(sinks=None if rules.sinks is None else rules.sinks.to(device, q.dtype))
    cache = case.keys.to(device), case.values.to(device)
    out: Tensor = paged.paged_attention(q.to(device), *cache, plan, 0.25, there).cpu()
    return out


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 3 * PART), min_size=1, max_size=2),
    starts=st.lists(st.floats(0, 0.99), min_size=2, max_size=2),
    new=st.integers(1, 60),
    rules=st.sampled_from(RULES),
    seed=st.integers(0, 2**32),
)
@example([2 * PART + 20, PART], [0.99, 0.5], 1, PLAIN, 0)  # keys of several programs, of one
@example([3 * PART, 40], [0.4, 0.0], 50, RULES[3], 1)
def test_a_chunk_beside_others_is_a_part_of_the_whole(
    device: torch.device,
    dtype: torch.dtype,
    lengths: list[int],
    starts: list[float],
    new: int,
    rules: AttentionRules,
    seed: int,
) -> None:
    case = sequences(lengths, dtype, seed)
    firsts = [int(at * n) for n, at in zip(lengths, starts, strict=False)]
    step = [(number, at, min(lengths[number], at + new)) for number, at in enumerate(firsts)]
    together = attend(case, device, step, rules)
    for (number, start, stop), found in zip(step, together, strict=True):
        (whole,) = attend(case, device, [(number, 0, lengths[number])], rules)
        assert torch.equal(found, whole[start:stop])
        torch.testing.assert_close(
            found.float(), case.expected(0.25, rules)[case.rows(number)][start:stop], rtol=3e-3, atol=3e-3
        )


@pytest.mark.parametrize(("rows", "context"), [(2, 2 * PART + 40), (5, 8 * PART)])
def test_recorded_steps_give_the_whole_prompts_bits(device: torch.device, rows: int, context: int) -> None:
    """For however many rows and however long contexts a step is recorded."""
    lengths = [2 * PART + 33, 17]
    case = sequences(lengths, torch.float32, 0)
    table = torch.zeros(rows, -(-context // 16), dtype=torch.int32)
    for row, span in enumerate(case.spans):
        table[row, : len(span.pages)] = torch.tensor(span.pages)
    there = torch.tensor(lengths + [0] * (rows - 2), dtype=torch.int32)
    q = torch.full((rows, 4, 16), torch.nan)
    q[:2] = queries(case, [(number, n - 1, n) for number, n in enumerate(lengths)])
    plan = plans.AttentionPlan.of_rows(there.to(device), table.to(device), context, 2, in_order=True)
    found = attend_by(plan, case, device, q, PLAIN)
    for number, n in enumerate(lengths):
        (whole,) = attend(case, device, [(number, 0, n)], PLAIN)
        assert torch.equal(found[number], whole[-1])


def test_without_order_a_chunk_has_other_bits(device: torch.device) -> None:
    """So what is compared above would differ if a tile's keys were summed by what else is in it."""
    case, last = sequences([3 * PART], torch.float32, 0), (0, 3 * PART - 1, 3 * PART)
    (alone,), (whole,) = (attend(case, device, step, PLAIN, in_order=False) for step in ([last], [(0, 0, 3 * PART)]))
    torch.testing.assert_close(alone[0], whole[-1])
    assert not torch.equal(alone[0], whole[-1])
