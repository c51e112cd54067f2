"""Tiny random checkpoints of every family, made offline: real configs, processors, tokenizers and templates."""

import math
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from reference import Reference, transformers
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.processor import Processor
from unifiedserve.models.tiny import make_checkpoint, make_tokenizer

CHATML = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.content is string -%}{{- message.content -}}{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'text' -%}{{- part.text -}}{%- else -%}{{- MEDIA[part.type] -}}{%- endif -%}
{%- endfor -%}{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

TEXT = {
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}
VISION = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "patch_size": 14,
    "image_size": 56,
}


class Family(NamedTuple):
    """How a family's checkpoint is made, which media it takes, and whether transformers takes several kinds at once."""

    make: Callable[[Path], None]
    media: frozenset[str]
    mixed: bool


class Loaded(NamedTuple):
    """A family's checkpoint, both sides of ours and transformers' own."""

    name: str
    media: frozenset[str]
    mixed: bool
    checkpoint: Path
    ours: Processor
    adapter: LanguageAdapter
    hf: Reference


FAMILIES: dict[str, Family] = {}


def family(
    *media: str, name: str = "", mixed: bool = True
) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    def register(make: Callable[[Path], None]) -> Callable[[Path], None]:
        FAMILIES[name or make.__name__] = Family(make, frozenset(media), mixed)
        return make

    return register


def chat_template(media: Mapping[str, str]) -> str:
    """A ChatML template that renders each kind of media so."""
    return f"{{%- set MEDIA = {dict(media)!r} -%}}\n" + CHATML


def tokenizer(*special: str, named: Mapping[str, str] | None = None, bos: str | None = None) -> Any:
    """Byte-level BPE of common words with further special tokens, some of them attributes (`named`).

    One with a `bos` opens every text with it, as Llama's does.
    """
    base = Tokenizer.from_str(_trained())
    base.add_special_tokens([*special, *(named or {}).values(), *([bos] if bos else [])])
    if bos:
        base.post_processor = TemplateProcessing(single=f"{bos} $0", special_tokens=[(bos, base.token_to_id(bos))])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=base,
        bos_token=bos,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=dict(named or {}),
    )


@cache
def _trained() -> str:
    return make_tokenizer(0).to_str()


def text_sizes(tokens: Any, **more: Any) -> dict[str, Any]:
    return {**TEXT, "vocab_size": len(tokens), "eos_token_id": tokens.eos_token_id, **more}


def save(directory: Path, config: Any, processor: Any, template: str) -> None:
    """Save a model, and everything else that a checkpoint holds."""
    save_model(directory, config)
    processor.chat_template = template
    processor.save_pretrained(directory)


def save_model(directory: Path, config: Any) -> None:
    """Save weights for which depth and context matter, with their configs."""
    multimodal = config is not config.get_text_config()
    auto = transformers.AutoModelForImageTextToText if multimodal else transformers.AutoModelForCausalLM
    torch.manual_seed(0)
    model = auto.from_config(config, dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            parameter.copy_(_initial(name, parameter, generator))
        for module in model.modules():
            if hasattr(module, "scalar_embed_scale"):  # the layers count as much as what they add to
                module.weight.div_(module.scalar_embed_scale)
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=config.get_text_config().eos_token_id, pad_token_id=0
    )
    model.save_pretrained(directory)


def _initial(name: str, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    values = torch.randn(like.shape, generator=generator)
    if "norm" in name and name.endswith("weight"):
        return like + 0.1 * values  # 1, or 0 where the module adds 1
    if like.numel() == 1:
        return 0.5 + 0.1 * values  # a gate, half open
    if like.dim() < 2 or "bias" in name:
        return 0.1 * values
    if "embed" in name:
        return 0.5 * values
    gain = 4.0 if "lm_head" in name else 2.0 if any(part in name for part in ("q_proj", "k_proj", "o_proj")) else 1.0
    return values * gain / math.sqrt(math.prod(like.shape[1:]))


@family("image", "video")
def qwen2_5_vl(directory: Path) -> None:
    make_checkpoint(directory)


def _text_only(directory: Path, model_type: str) -> None:
    tokens = tokenizer()
    save(directory, transformers.AutoConfig.for_model(model_type, **text_sizes(tokens)), tokens, chat_template({}))


@family()
def llama(directory: Path) -> None:
    _text_only(directory, "llama")


@family()
def qwen2(directory: Path) -> None:
    _text_only(directory, "qwen2")


@family()
def qwen3(directory: Path) -> None:
    _text_only(directory, "qwen3")


@family("image", "video")
def internvl(directory: Path) -> None:
    internvl_with(directory, transformers.Qwen2Config)


def internvl_with(directory: Path, text: Callable[..., Any], **sizes: Any) -> None:
    """Save an InternVL checkpoint with a language model of such a configuration."""
    named = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    tokens = tokenizer(named=named)
    config = transformers.InternVLConfig(
        text_config=text(**text_sizes(tokens, **sizes)),
        vision_config=transformers.InternVLVisionConfig(**VISION),
        image_token_id=tokens.context_image_token_id,
        image_seq_length=4,
        tie_word_embeddings=False,
    )
    size = {"height": 56, "width": 56}
    processor = transformers.InternVLProcessor(
        transformers.GotOcr2ImageProcessor(size=size, max_patches=6),
        tokens,
        transformers.InternVLVideoProcessor(size=size),
        image_seq_length=4,
    )
    save(directory, config, processor, chat_template({"image": "<IMG_CONTEXT>\n", "video": "<video>\n"}))
