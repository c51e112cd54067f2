"""MiniCPM-V 4.6 with patches of 4 pixels, slices of about 32 x 32, and a Qwen3.5, with linear attention and without."""

from pathlib import Path
from typing import Any

from builders import TEXT, VISION, chat_template, family, save, text_sizes, tokenizer
from builders_qwen import LINEAR
from reference import transformers

NAMED = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "image_start_token": "<image>",
    "image_end_token": "</image>",
    "slice_start_token": "<slice>",
    "slice_end_token": "</slice>",
    "image_id_start_token": "<image_id>",
    "image_id_end_token": "</image_id>",
}


@family("image", "video")
def minicpmv4_6(directory: Path) -> None:
    save_minicpm(directory, LINEAR)


@family("image", "video")
def minicpmv4_6_full_attention(directory: Path) -> None:
    save_minicpm(directory, {"head_dim": 16, "layer_types": ["full_attention"] * TEXT["num_hidden_layers"]})


def save_minicpm(directory: Path, layers: dict[str, Any]) -> None:
    tokens = tokenizer(named=NAMED)
    text = text_sizes(tokens, **layers)
    config = transformers.MiniCPMV4_6Config(
        text_config=transformers.Qwen3_5TextConfig(**text),
        vision_config={**VISION, "patch_size": 4, "image_size": 56},
        insert_layer_id=1,
        image_token_id=tokens.image_token_id,
        video_token_id=tokens.video_token_id,
    )
    rules = {"scale_resolution": 32, "patch_size": 4, "max_slice_nums": 6}
    processor = transformers.MiniCPMV4_6Processor(
        transformers.MiniCPMV4_6ImageProcessor(**rules),
        transformers.MiniCPMV4_6VideoProcessor(**rules, max_num_frames=6),
        tokens,
    )
    save(directory, config, processor, chat_template({"image": NAMED["image_token"], "video": NAMED["video_token"]}))
