"""Gemma 3 with windows shorter than an image's visual tokens: 16 of an image of 112 x 112.

The embeddings are the head's weights, as they are in all published ones.
"""

from pathlib import Path
from typing import Any

from builders import VISION, chat_template, family, save, text_sizes, tokenizer
from reference import transformers

SIDE = 112
NAMED = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}


def _text(tokens: Any, **more: Any) -> Any:
    rope = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    sizes = {"head_dim": 24, "query_pre_attn_scalar": 20, "rope_parameters": rope}
    layers = ["sliding_attention", "full_attention", "sliding_attention"]
    more |= {"pad_token_id": 0, "tie_word_embeddings": True}
    return transformers.Gemma3TextConfig(**text_sizes(tokens, **sizes, sliding_window=12, layer_types=layers, **more))


@family("image")
def gemma3(directory: Path) -> None:
    tokens = tokenizer(named=NAMED)
    config = transformers.Gemma3Config(
        text_config=_text(tokens),
        vision_config=transformers.SiglipVisionConfig(**{**VISION, "image_size": SIDE}, vision_use_head=False),
        mm_tokens_per_image=16,
        boi_token_index=tokens.boi_token_id,
        eoi_token_index=tokens.eoi_token_id,
        image_token_index=tokens.image_token_id,
    )
    rules = transformers.Gemma3ImageProcessor(size={"height": SIDE, "width": SIDE}, image_mean=[0.5] * 3)
    processor = transformers.Gemma3Processor(rules, tokens, image_seq_length=16)
    save(directory, config, processor, chat_template({"image": NAMED["boi_token"]}))


@family()
def gemma3_text(directory: Path) -> None:
    tokens = tokenizer()
    config = _text(tokens, final_logit_softcapping=20.0)
    save(directory, config, tokens, chat_template({}))
