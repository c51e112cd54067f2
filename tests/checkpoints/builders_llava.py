"""Tiny checkpoints of the LLaVA families."""

from pathlib import Path
from typing import Any

from builders import VISION, chat_template, family, save, text_sizes, tokenizer
from reference import transformers

SIDE = VISION["image_size"]
GRIDS = [(1, 2), (2, 1), (2, 2), (1, 3), (3, 1)]  # rows and columns of tiles
TEMPLATE = {"image": "<image>\n", "video": "<video>\n"}


def resolutions(side: int, grids: list[tuple[int, int]]) -> list[list[int]]:
    return [[rows * side, columns * side] for rows, columns in grids]


def text(tokens: Any, family: str = "Llama", **more: Any) -> Any:
    return getattr(transformers, f"{family}Config")(**text_sizes(tokens, **more))


def clip() -> Any:
    return transformers.CLIPVisionConfig(**VISION, projection_dim=64)


def cropped() -> dict[str, Any]:
    return {"size": {"shortest_edge": SIDE}, "crop_size": {"height": SIDE, "width": SIDE}}


def save_image_family(directory: Path, config: Any, processor: Any, rules: Any, tokens: Any) -> None:
    """Of a model that takes images alone, which CLIP encodes."""
    made = processor(
        rules,
        tokens,
        patch_size=14,
        vision_feature_select_strategy="default",
        image_token="<image>",
        num_additional_image_tokens=1,
    )
    save(directory, config, made, chat_template({"image": "<image>\n"}))


def llava_checkpoint(directory: Path, rules: Any, bos: str | None = None) -> None:
    tokens = tokenizer("<image>", bos=bos)
    config = transformers.LlavaConfig(
        text_config=text(tokens),
        vision_config=clip(),
        image_token_id=tokens.convert_tokens_to_ids("<image>"),
        image_seq_length=16,
    )
    save_image_family(directory, config, transformers.LlavaProcessor, rules, tokens)


@family("image")
def llava(directory: Path) -> None:
    llava_checkpoint(directory, transformers.CLIPImageProcessor(**cropped()), bos="<s>")


@family("image")
def llava_squares(directory: Path) -> None:
    llava_checkpoint(directory, transformers.LlavaImageProcessor(**cropped(), do_pad=True))


def llava_next_checkpoint(directory: Path, text_config: Any, tokens: Any) -> None:
    pinpoints = resolutions(SIDE, GRIDS)
    config = transformers.LlavaNextConfig(
        text_config=text_config,
        vision_config=clip(),
        image_token_index=tokens.convert_tokens_to_ids("<image>"),
        image_grid_pinpoints=pinpoints,
    )
    rules = transformers.LlavaNextImageProcessor(**cropped(), image_grid_pinpoints=pinpoints)
    save_image_family(directory, config, transformers.LlavaNextProcessor, rules, tokens)


@family("image")
def llava_next(directory: Path) -> None:
    tokens = tokenizer("<image>")
    llava_next_checkpoint(directory, text(tokens), tokens)


@family("image")
def llava_next_mistral(directory: Path) -> None:
    tokens = tokenizer("<image>")
    llava_next_checkpoint(directory, text(tokens, "Mistral", sliding_window=None), tokens)


@family("image")
def llava_next_qwen2(directory: Path) -> None:
    tokens = tokenizer("<image>")
    llava_next_checkpoint(directory, text(tokens, "Qwen2"), tokens)


@family("image", "video")
def llava_next_video(directory: Path) -> None:
    tokens = tokenizer("<image>", "<video>")
    pinpoints = resolutions(SIDE, GRIDS)
    config = transformers.LlavaNextVideoConfig(
        text_config=text(tokens),
        vision_config=clip(),
        image_token_index=tokens.convert_tokens_to_ids("<image>"),
        video_token_index=tokens.convert_tokens_to_ids("<video>"),
        image_grid_pinpoints=pinpoints,
    )
    processor = transformers.LlavaNextVideoProcessor(
        transformers.LlavaNextVideoVideoProcessor(**cropped()),
        transformers.LlavaNextImageProcessor(**cropped(), image_grid_pinpoints=pinpoints),
        tokens,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
    save(directory, config, processor, chat_template(TEMPLATE))


@family("image", "video")
def llava_onevision(directory: Path) -> None:
    """Its side is no multiple of the patch, as 384 is none of 14; few tiles are enough to have features scaled down."""
    side = 78
    tokens = tokenizer("<image>", "<video>")
    pinpoints = resolutions(side, [(rows, columns) for rows in range(1, 5) for columns in range(1, 5)])
    config = transformers.LlavaOnevisionConfig(
        text_config=text(tokens, "Qwen2"),
        vision_config=transformers.SiglipVisionConfig(**{**VISION, "image_size": side}, vision_use_head=False),
        image_token_index=tokens.convert_tokens_to_ids("<image>"),
        video_token_index=tokens.convert_tokens_to_ids("<video>"),
        image_grid_pinpoints=pinpoints,
        vision_aspect_ratio="anyres_max_4",
    )
    size = {"height": side, "width": side}
    processor = transformers.LlavaOnevisionProcessor(
        transformers.LlavaOnevisionImageProcessor(size=size, image_grid_pinpoints=pinpoints),
        tokens,
        transformers.LlavaOnevisionVideoProcessor(size=size),
        num_image_tokens=25,
        vision_feature_select_strategy="full",
        vision_aspect_ratio="anyres_max_4",
    )
    save(directory, config, processor, chat_template(TEMPLATE))
