"""With a KV cache of codes, answers equal those of transformers whose keys and values are rounded as codes are."""

from typing import Any

import pytest
import torch
from builders import Loaded
from conformance_cases import TOKENS, cases, prepare
from model_loop import Loop
from reference import Case, transformers
from torch import Tensor

LAYERS = ["DynamicLayer", "DynamicSlidingWindowLayer"]  # of transformers' cache
#: llama-like layers, windows and tokens that see later ones, recurrent states beside keys, cross-attention
FAMILIES = ["qwen2_5_vl", "llava", "gemma3", "qwen3_5_text", "mllama"]
CLOSE = 0.02  # of the standard deviation of the logits


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
    """Until two tokens are so close that a key's last bit, hence its code, may decide between them."""
    eos, counts = loaded.ours.eos_token_ids, []
    for case in cases(loaded).values():
        expected, clear = certain(loaded, case)
        for chunk in (16, 1 << 30):
            loop = Loop(loaded.adapter, kv_dtype=torch.int8)
            try:
                (tokens,) = loop.generate([prepare(loaded, case)], TOKENS, chunk, eos)
            finally:
                loop.close()
            assert tokens == expected or tokens[:clear] == expected[:clear]
            same = [ours == theirs for ours, theirs in zip(tokens, expected, strict=False)]
            counts.append((same.index(False) if False in same else len(expected), len(expected)))
    assert sum(same for same, _ in counts) > 0.9 * sum(count for _, count in counts)


def certain(loaded: Loaded, case: Case) -> tuple[list[int], int]:
    """Return transformers' tokens, and how many come before the first close decision between two."""
    inputs = loaded.hf.inputs(case)
    out = loaded.hf.model.generate(
        **inputs, max_new_tokens=TOKENS, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    close = [float(-row.topk(2).values[0].diff()) < CLOSE * float(row.std()) for row in out.logits]
    return out.sequences[0, inputs["input_ids"].shape[1] :].tolist(), [*close, True].index(True)
