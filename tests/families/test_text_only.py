"""Text models whose attention we lack are refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from builders import save, text_sizes, tokenizer
from model_loop import make_adapter
from reference import transformers

from unifiedserve.errors import ConfigError


@pytest.mark.parametrize(("family", "sizes"), [
    ("mistral", {"sliding_window": 64}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1}),
])  # fmt: skip
def test_sliding_windows_are_refused(family: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    tokens = tokenizer()
    save(tmp_path, transformers.AutoConfig.for_model(family, **text_sizes(tokens, **sizes)), tokens, "")
    with pytest.raises(ConfigError, match=r"sliding-window attention is not supported .*64 tokens"):
        make_adapter(tmp_path, torch.float32)


def test_a_window_of_the_whole_context_is_none(tmp_path: Path) -> None:
    tokens = tokenizer()
    save(tmp_path, transformers.MistralConfig(**text_sizes(tokens, sliding_window=8192)), tokens, "")
    make_adapter(tmp_path, torch.float32)
