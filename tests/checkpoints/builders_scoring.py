"""Text models whose attention does more than others': soft caps, sinks, chunks; windows and chunks are short ones."""

from pathlib import Path
from typing import Any

from builders import chat_template, family, save, text_sizes, tokenizer
from reference import transformers

SIZES: dict[str, dict[str, Any]] = {
    "gemma2": {
        "head_dim": 24,
        "query_pre_attn_scalar": 20,
        "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": 20.0,
        "sliding_window": 12,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
    },
    "gpt_oss": {
        "head_dim": 16,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 12,
        "max_position_embeddings": 131072,
    },
    "llama4_text": {
        "head_dim": 16,
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 128,
        "interleave_moe_layer_step": 2,
        "no_rope_layer_interval": 3,
        "attention_chunk_size": 24,
        "floor_scale": 8,
        "attn_scale": 0.5,
    },
}


def _save(directory: Path, name: str) -> None:
    tokens = tokenizer()
    config = transformers.AutoConfig.for_model(name, **text_sizes(tokens, **SIZES[name]))
    save(directory, config, tokens, chat_template({}))


@family()
def gemma2(directory: Path) -> None:
    _save(directory, "gemma2")


@family()
def gpt_oss(directory: Path) -> None:
    _save(directory, "gpt_oss")


@family()
def llama4_text(directory: Path) -> None:
    _save(directory, "llama4_text")
