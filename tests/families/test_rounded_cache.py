"""With a KV cache of codes, answers equal those of transformers whose keys and values are rounded as codes are."""

from typing import Any

import pytest
import torch
from builders import Loaded
from conformance_cases import TOKENS, cases, prepare
from model_loop import Loop
from reference import transformers
from torch import Tensor

LAYERS = ["DynamicLayer", "DynamicSlidingWindowLayer"]  # of transformers' cache
#: llama-like layers, windows and tokens that see later ones, recurrent states beside keys, cross-attention
FAMILIES = ["qwen2_5_vl", "llava", "gemma3", "qwen3_5_text", "mllama"]


def rounded(x: Tensor) -> Tensor:
    """[..., head_dim] in steps of a 127th of the largest magnitude."""
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round() * scale


@pytest.fixture
def rounding_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LAYERS:
        layer = getattr(transformers.cache_utils, name)

        def update(self: Any, keys: Tensor, values: Tensor, *more: Any, plain: Any = layer.update, **named: Any) -> Any:
            return plain(self, rounded(keys), rounded(values), *more, **named)

        monkeypatch.setattr(layer, "update", update)


@pytest.mark.parametrize("loaded", FAMILIES, indirect=True)
@pytest.mark.usefixtures("rounding_transformers")
def test_equals_rounded_transformers(loaded: Loaded) -> None:
    eos = loaded.ours.eos_token_ids
    for case in cases(loaded).values():
        expected = loaded.hf.generate(case, TOKENS)
        for chunk in (16, 1 << 30):
            loop = Loop(loaded.adapter, kv_dtype=torch.int8)
            try:
                assert loop.generate([prepare(loaded, case)], TOKENS, chunk, eos) == [expected]
            finally:
                loop.close()
