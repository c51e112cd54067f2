"""bfloat16 against transformers' own bfloat16, both measured against float32, over 2,000 positions.

With random weights the best two logits are often closer than bfloat16 can tell apart, so two right implementations
disagree there. What users can rely on: errors no larger than transformers', and the same token wherever float32's
choice is clear.
"""

import copy

import pytest
import torch
from builders import Loaded
from conformance_cases import CASES, prepare
from model_loop import Loop, make_adapter, prompt_logits
from torch import Tensor

from unifiedserve.attention import RaggedBatch
from unifiedserve.models.adapter import LanguageAdapter

PROMPTS, LENGTH = 4, 500
CLEAR = 4.0  # deviations of our error by which the best logit leads


def prompts(vocabulary: int) -> Tensor:
    """Token ids without special ones, which may stand for media."""
    return torch.randint(0, min(vocabulary, 1000), (PROMPTS, LENGTH), generator=torch.Generator().manual_seed(1))


def our_logits(adapter: LanguageAdapter, ids: Tensor) -> Tensor:
    loop = Loop(adapter)
    try:
        embeds = adapter.embed(ids, None, torch.zeros(len(ids), dtype=torch.bool))
        batch = RaggedBatch.build([loop.kv.span(range(loop.kv.pages_for(len(ids))), 0, len(ids))], loop.kv.page_size)
        hidden = adapter.forward(embeds, adapter.positions(ids.tolist(), []), batch, loop.kv)
        return adapter.logits(hidden).clone()
    finally:
        loop.close()


def test_bfloat16_is_as_good_as_transformers(loaded: Loaded) -> None:
    ids = prompts(loaded.ours.vocab_size)
    half = make_adapter(loaded.checkpoint, torch.bfloat16)
    ours = torch.cat([our_logits(half, row) for row in ids])
    with torch.inference_mode():
        exact = loaded.hf.model(input_ids=ids).logits.flatten(0, 1)
        theirs = copy.deepcopy(loaded.hf.model).bfloat16()(input_ids=ids).logits.float().flatten(0, 1)
    our_error, their_error = (float((logits - exact).std()) for logits in (ours, theirs))
    assert our_error <= 1.1 * their_error
    best = exact.argmax(-1)
    agree, they_agree = (logits.argmax(-1) == best for logits in (ours, theirs))
    assert agree.float().mean() >= they_agree.float().mean() - 0.01
    lead = exact.topk(2).values.diff(dim=-1).abs()[:, 0]
    clear = lead > CLEAR * our_error
    assert clear.sum() > 100
    assert agree[clear].float().mean() >= 0.99


def test_media_in_bfloat16(loaded: Loaded) -> None:
    """Visual tokens in bfloat16, all the way to the logits behind them."""
    if "image" not in loaded.media:
        pytest.skip("a family without images")
    request = prepare(loaded, CASES["image"])
    half = make_adapter(loaded.checkpoint, torch.bfloat16)
    exact, rounded = prompt_logits(loaded.adapter, request), prompt_logits(half, request)
    similarity = mean_similarity(exact, rounded)
    assert similarity > 0.99 or similarity > their_similarity(loaded, exact) - 0.002


def mean_similarity(exact: Tensor, rounded: Tensor) -> float:
    return float(torch.cosine_similarity(exact, rounded, dim=-1).mean())


def their_similarity(loaded: Loaded, exact: Tensor) -> float:
    """That of transformers: random linear attention makes much of small differences between pictures."""
    inputs = loaded.hf.inputs(CASES["image"])
    half = {name: value.bfloat16() if value.is_floating_point() else value for name, value in inputs.items()}
    with torch.inference_mode():
        logits = copy.deepcopy(loaded.hf.model).bfloat16()(**half).logits[0]
    return mean_similarity(exact, logits.float())
