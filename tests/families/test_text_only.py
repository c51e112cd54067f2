"""Text models some of whose layers only see a window of the context."""

from pathlib import Path
from typing import Any

import pytest
import reference
import torch
from builders import chat_template, save, text_sizes, tokenizer
from cases import user
from model_loop import Loop, Request, make_adapter
from reference import Case, transformers

from unifiedserve.device.cpu.dtypes import KERNEL_DTYPES
from unifiedserve.device.llama import fits
from unifiedserve.models.registry import load_processor

CASE = Case([user("What is a river, and how does it differ from a lake? Be brief.")])
SOME_LAYERS = {"use_sliding_window": True, "sliding_window": 10, "max_window_layers": 1}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}


@pytest.mark.parametrize(("family", "sizes"), [
    ("mistral", {"sliding_window": 10}),
    ("mistral", {"sliding_window": 10, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
    ("qwen2", SOME_LAYERS),
    ("qwen3", SOME_LAYERS),
    ("qwen2_moe", {**SOME_LAYERS, **EXPERTS, "shared_expert_intermediate_size": 64}),
    ("qwen3_moe", {**SOME_LAYERS, **EXPERTS}),
])  # fmt: skip
def test_windows(family: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    tokens = tokenizer()
    config = transformers.AutoConfig.for_model(family, **text_sizes(tokens, **sizes))
    save(tmp_path, config, tokens, chat_template({}))
    ours = load_processor(tmp_path)
    hf = reference.load(tmp_path)
    expected = hf.generate(CASE, 24)
    loop = Loop(make_adapter(tmp_path, torch.float32))
    try:
        for chunk in (7, 1 << 30):
            request = Request(ours.prompt(CASE.messages, []), torch.empty(0, 1, dtype=torch.uint8))
            assert loop.generate([request], 24, chunk, ours.eos_token_ids) == [expected]
            loop.preempt(request)
    finally:
        loop.close()


def test_a_window_of_the_whole_context_is_none(tmp_path: Path) -> None:
    tokens = tokenizer()
    save(tmp_path, transformers.MistralConfig(**text_sizes(tokens, sliding_window=8192)), tokens, "")
    assert fits(make_adapter(tmp_path, torch.float32).language_model, torch.float32, KERNEL_DTYPES)
