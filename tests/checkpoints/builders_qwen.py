"""Tiny random checkpoints of the Qwen families; Qwen2.5-VL's is the project's own."""

from pathlib import Path
from typing import Any

from builders import VISION, chat_template, family, save, text_sizes, tokenizer
from reference import transformers

IMAGE, VIDEO = "<|image_pad|>", "<|video_pad|>"
TEMPLATE = chat_template({
    "image": f"<|vision_start|>{IMAGE}<|vision_end|>",
    "video": f"<|vision_start|>{VIDEO}<|vision_end|>",
})  # fmt: skip
EXPERTS = {"num_experts": 12, "num_experts_per_tok": 2, "moe_intermediate_size": 64}


def token_ids(tokens: Any) -> dict[str, int]:
    names = {
        "image_token_id": IMAGE,
        "video_token_id": VIDEO,
        "vision_start_token_id": "<|vision_start|>",
        "vision_end_token_id": "<|vision_end|>",
    }
    return {name: tokens.convert_tokens_to_ids(token) for name, token in names.items()}


@family("image", "video")
def qwen2_vl(directory: Path) -> None:
    tokens = tokenizer()
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
    config = transformers.Qwen2VLConfig(
        text_config=text_sizes(tokens, rope_parameters=rope),
        vision_config={"depth": 3, "embed_dim": 64, "hidden_size": 96, "num_heads": 4, "mlp_ratio": 2},
        **token_ids(tokens),
    )
    rules = {"min_pixels": 56 * 56, "max_pixels": 28 * 28 * 64}
    processor = transformers.Qwen2VLProcessor(
        transformers.Qwen2VLImageProcessor(**rules), tokens, transformers.Qwen2VLVideoProcessor(**rules, fps=2.0)
    )
    save(directory, config, processor, TEMPLATE)


def _qwen3_vl(directory: Path, config_class: Any, **text: Any) -> None:
    tokens = tokenizer()
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 2, 2], "mrope_interleaved": True}
    config = config_class(
        text_config=text_sizes(tokens, head_dim=16, num_hidden_layers=4, rope_parameters=rope, **text),
        vision_config={
            "depth": 4,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": VISION["num_attention_heads"],
            "out_hidden_size": 96,
            "num_position_embeddings": 36,
            "deepstack_visual_indexes": [0, 2],
        },
        tie_word_embeddings=False,
        **token_ids(tokens),
    )
    save_qwen3(directory, config, tokens)


def save_qwen3(directory: Path, config: Any, tokens: Any) -> None:
    half = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    images = transformers.Qwen2VLImageProcessor(patch_size=16, min_pixels=64 * 64, max_pixels=32 * 32 * 64, **half)
    videos = transformers.Qwen3VLVideoProcessor(size={"shortest_edge": 64 * 64, "longest_edge": 32 * 32 * 200})
    save(directory, config, transformers.Qwen3VLProcessor(images, tokens, videos), TEMPLATE)


@family("image", "video")
def qwen3_vl(directory: Path) -> None:
    _qwen3_vl(directory, transformers.Qwen3VLConfig)


@family("image", "video")
def qwen3_vl_moe(directory: Path) -> None:
    _qwen3_vl(directory, transformers.Qwen3VLMoeConfig, **EXPERTS)


LINEAR = {  # three layers of linear attention before each of full attention
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention", "full_attention"],
    "num_hidden_layers": 5,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 12,
    "head_dim": 32,
}


def _qwen3_5(directory: Path, config_class: Any, **text: Any) -> None:
    tokens = tokenizer()
    rope = {
        "rope_type": "default",
        "rope_theta": 1e6,
        "mrope_section": [2, 1, 1],
        "mrope_interleaved": True,
        "partial_rotary_factor": 0.25,
    }
    config = config_class(
        text_config=text_sizes(tokens, rope_parameters=rope, **LINEAR, **text),
        vision_config={
            "depth": 3,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": VISION["num_attention_heads"],
            "out_hidden_size": 96,
            "num_position_embeddings": 36,
        },
        tie_word_embeddings=False,
        **token_ids(tokens),
    )
    save_qwen3(directory, config, tokens)


@family("image", "video")
def qwen3_5(directory: Path) -> None:
    _qwen3_5(directory, transformers.Qwen3_5Config)


@family("image", "video")
def qwen3_5_moe(directory: Path) -> None:
    _qwen3_5(directory, transformers.Qwen3_5MoeConfig, **EXPERTS, shared_expert_intermediate_size=64)


@family()
def qwen3_5_text(directory: Path) -> None:
    tokens = tokenizer()
    save(directory, transformers.Qwen3_5TextConfig(**text_sizes(tokens, **LINEAR)), tokens, chat_template({}))


@family()
def qwen2_moe(directory: Path) -> None:
    tokens = tokenizer()
    sizes = text_sizes(tokens, **EXPERTS, shared_expert_intermediate_size=64)
    save(directory, transformers.Qwen2MoeConfig(**sizes), tokens, chat_template({}))


@family()
def qwen3_moe(directory: Path) -> None:
    tokens = tokenizer()
    sizes = text_sizes(tokens, **EXPERTS, head_dim=16, norm_topk_prob=True)
    save(directory, transformers.Qwen3MoeConfig(**sizes), tokens, chat_template({}))


@family()
def mistral(directory: Path) -> None:
    tokens = tokenizer()
    config = transformers.MistralConfig(**text_sizes(tokens, sliding_window=None))
    save(directory, config, tokens, chat_template({}))
