"""A small language model with random weights, the same every time."""

from typing import Any

import torch
from reference import transformers


def small_qwen2(vocab_size: int, layers: int) -> Any:
    """Return a Qwen2 of transformers with 4 heads of 16 numbers, 2 of keys and values."""
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=False,
    )
    return transformers.Qwen2ForCausalLM(config).eval().requires_grad_(False)
