"""Write the files of a Qwen2.5-VL checkpoint beside its weights, as the hub has them."""

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CONTEXT = 32768
TOKENS_PER_SECOND = 2  # positions in time that a second of video takes

SPECIAL_TOKENS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
PLAIN_TOKENS = ["<tool_call>", "</tool_call>"]  # added tokens that count as text

# Renders what the templates of Qwen2-VL and Qwen2.5-VL render, tools aside.
CHAT_TEMPLATE = """\
{%- if messages[0].role != 'system' -%}
{{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' -}}
{%- if message.content is string -%}
{{- message.content -}}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'image' -%}
<|vision_start|><|image_pad|><|vision_end|>
{%- elif part.type == 'video' -%}
<|vision_start|><|video_pad|><|vision_end|>
{%- elif part.type == 'text' -%}
{{- part.text -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' -}}
{%- endif -%}
"""

IMAGE_RULES = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
    "min_pixels": 56 * 56,
    "max_pixels": 28 * 28 * 256,
}
VIDEO_RULES = {
    "video_processor_type": "Qwen2VLVideoProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
    "min_pixels": 56 * 56,
    "max_pixels": 28 * 28 * 64,
    "do_sample_frames": True,
    "fps": 2.0,
    "min_frames": 4,
    "max_frames": 256,
    "cap_pixels_per_frame": False,
}
PATCHES = {
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}


def write_files(
    directory: Path,
    config: dict[str, Any],
    tokenizer: Tokenizer,
    *,
    chat_template: str = CHAT_TEMPLATE,
    image_rules: Mapping[str, Any] = MappingProxyType({}),
    video_rules: Mapping[str, Any] = MappingProxyType({}),
    generation: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write all but the weights into `directory`; rules replace fields of IMAGE_RULES and VIDEO_RULES.

    `generation` are further fields of generation_config.json: how tokens are chosen where a request does not say it.
    """
    tokenizer.save(str(directory / "tokenizer.json"))
    _write(directory / "tokenizer_config.json", _tokenizer_config(tokenizer))
    (directory / "chat_template.jinja").write_text(chat_template, "utf-8")
    _write(directory / "preprocessor_config.json", IMAGE_RULES | PATCHES | dict(image_rules))
    _write(directory / "video_preprocessor_config.json", VIDEO_RULES | PATCHES | dict(video_rules))
    _write(directory / "config.json", config)
    end, nothing = tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")
    _write(
        directory / "generation_config.json", {"eos_token_id": [end, nothing], "pad_token_id": nothing, **generation}
    )


def train_tokenizer(sentences: Iterable[str], vocabulary: int) -> Tokenizer:
    """Train byte-level BPE of `vocabulary` tokens, and add Qwen's special ones."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences, trainer)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in PLAIN_TOKENS])
    return tokenizer


def model_config(tokenizer: Tokenizer, text: Mapping[str, Any], vision: Mapping[str, Any]) -> dict[str, Any]:
    """Make a flat config.json as in the checkpoints on the hub. The text model's fields are at the top.

    `text` and `vision` are the fields that are a model's own: its sizes, positions and attention.
    """
    ids = {token: tokenizer.token_to_id(token) for token in SPECIAL_TOKENS}
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "torch_dtype": "bfloat16",
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "use_sliding_window": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
        **deepcopy(dict(text)),  # transformers writes into what it reads
        "vision_config": {
            "model_type": "qwen2_5_vl",
            "in_chans": 3,
            "out_hidden_size": text["hidden_size"],
            "patch_size": PATCHES["patch_size"],
            "spatial_patch_size": PATCHES["patch_size"],
            "temporal_patch_size": PATCHES["temporal_patch_size"],
            "spatial_merge_size": PATCHES["merge_size"],
            "window_size": 112,
            "tokens_per_second": TOKENS_PER_SECOND,
            "hidden_act": "silu",
            **deepcopy(dict(vision)),
        },
    }


def hub_name(name: str) -> str:
    """Return a parameter's name in checkpoints on the hub. These are older than the names of the modules."""
    return name.replace("model.language_model.", "model.").replace("model.visual.", "visual.")


def _tokenizer_config(tokenizer: Tokenizer) -> dict[str, Any]:
    added = {
        str(index): {
            "content": token.content,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": token.special,
        }
        for index, token in sorted(tokenizer.get_added_tokens_decoder().items())
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": added,
        "additional_special_tokens": SPECIAL_TOKENS[1:],
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": CONTEXT,
    }


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")
