"""Greedy float32 tokens equal transformers' generate: chunked, batched, over scattered pages, after preemption."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from generation_cases import CASES
from model_loop import Loop, make_adapter, prepare, prompt_logits
from reference import Reference

from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.processor import Processor

TOKENS = 32


@pytest.fixture
def loop(adapter: LanguageAdapter) -> Iterator[Loop]:
    loop = Loop(adapter)
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def expected(hf: Reference) -> dict[str, list[int]]:
    return {name: hf.generate(case, TOKENS) for name, case in CASES.items()}


@pytest.mark.parametrize("chunk", [16, 100, 1 << 30])
@pytest.mark.parametrize("name", CASES)
def test_equals_generate(
    name: str, chunk: int, ours: Processor, hf: Reference, loop: Loop, expected: dict[str, list[int]]
) -> None:
    request = prepare(ours, hf, CASES[name])
    assert loop.generate([request], TOKENS, chunk, ours.eos_token_ids) == [expected[name]]


def test_token_by_token(ours: Processor, hf: Reference, loop: Loop, expected: dict[str, list[int]]) -> None:
    request = prepare(ours, hf, CASES["image"])
    assert loop.generate([request], TOKENS, 1, ours.eos_token_ids) == [expected["image"]]


@pytest.mark.parametrize("chunk", [23, 1 << 30])
def test_all_at_once(chunk: int, ours: Processor, hf: Reference, loop: Loop, expected: dict[str, list[int]]) -> None:
    requests = [prepare(ours, hf, case) for case in CASES.values()]
    assert loop.generate(requests, TOKENS, chunk, ours.eos_token_ids) == list(expected.values())


def test_recompute_after_preemption(ours: Processor, hf: Reference, loop: Loop, expected: dict[str, list[int]]) -> None:
    names = ["video of 64 frames", "text", "two turns"]
    requests = [prepare(ours, hf, CASES[name]) for name in names]

    def preempt(step: int) -> None:
        if step in (9, 15):
            loop.preempt(requests[0])
        if step == 13:
            loop.preempt(requests[2])

    tokens = loop.generate(requests, TOKENS, 100, ours.eos_token_ids, preempt)
    assert tokens == [expected[name] for name in names]


@pytest.mark.parametrize("fused", [True, False])
def test_only_wanted_rows_come_back(
    fused: bool, ours: Processor, hf: Reference, adapter: LanguageAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = prepare(ours, hf, CASES["image"])
    whole = prompt_logits(adapter, request)
    assert len(whole) == len(request.prompt.token_ids)
    if not fused:
        monkeypatch.setattr(adapter, "_run", adapter.run_modules)
    for wanted in (0, 1, 5, len(whole)):
        torch.testing.assert_close(
            prompt_logits(adapter, request, wanted), whole[len(whole) - wanted :], rtol=1e-4, atol=1e-4
        )


def test_units_do_not_depend_on_each_other(ours: Processor, hf: Reference, adapter: LanguageAdapter) -> None:
    request = prepare(ours, hf, CASES["two turns"])
    whole = adapter.encode(request.patches, [(plan, plan.units) for plan in request.prompt.media])
    parts, row = [], 0
    for plan in request.prompt.media:
        for _ in range(plan.units):
            parts.append(adapter.encode(request.patches[row : row + plan.patches_per_unit], [(plan, 1)]))
            row += plan.patches_per_unit
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=2e-5)


def test_bfloat16_stays_close(ours: Processor, hf: Reference, adapter: LanguageAdapter, checkpoint: Any) -> None:
    """Visual tokens and logits of the bfloat16 model agree with float32's as far as rounding allows."""
    half = make_adapter(checkpoint, torch.bfloat16)
    request = prepare(ours, hf, CASES["image and video"])
    units = [(plan, plan.units) for plan in request.prompt.media]
    visual = half.encode(request.patches, units)
    assert visual.dtype == torch.bfloat16
    assert torch.cosine_similarity(adapter.encode(request.patches, units), visual.float(), dim=-1).min() > 0.999
    full, rounded = (prompt_logits(each, request) for each in (adapter, half))
    assert rounded.dtype == torch.float32
    assert torch.cosine_similarity(full, rounded, dim=-1).mean() > 0.99
