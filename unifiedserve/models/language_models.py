"""Know the language models in checkpoints: others are refused before anything is served."""

from itertools import product
from typing import Any

from unifiedserve.errors import ConfigError
from unifiedserve.memory.recurrent_state import LINEAR_ATTENTION
from unifiedserve.models.layer_positions import CHUNKED_ATTENTION

#: the text configs whose answers were compared with transformers'; tests/families/text_variants.py tries others
LANGUAGE_MODELS = frozenset({
    *("cohere", "cohere2"),
    *("ernie4_5", "ernie4_5_moe"),
    *("exaone4", "helium", "seed_oss", "smollm3", "starcoder2", "hunyuan_v1_dense"),
    *("gemma", "gemma2", "gemma3_text"),
    *("glm", "glm4", "glm4_moe"),
    *("gpt_oss", "granite", "granitemoe"),
    *("llama", "llama4_text", "mllama_text_model"),
    *("mistral", "ministral"),
    *("olmo", "olmo2", "olmo3", "olmoe"),
    *("phi", "phi3"),
    *("qwen2", "qwen2_moe", "qwen2_vl_text", "qwen2_5_vl_text"),
    *("qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_5_text", "qwen3_5_moe_text"),
})  # fmt: skip
#: kinds of layers that our attention knows; which tokens the others see is in a mask that nobody makes here
LAYER_TYPES = frozenset({"full_attention", "sliding_attention", LINEAR_ATTENTION})
#: and where a text config knows others
OWN_LAYER_TYPES = {"llama4_text": frozenset({"full_attention", CHUNKED_ATTENTION})}
#: fields that are numbers by which scores or logits are divided
_CAPS = ("attn_logit_softcapping", "final_logit_softcapping")
#: fields that say whether tokens see those after them, and what they are if they do not
_DIRECTIONS = {"is_causal": True, "use_bidirectional_attention": False}


def check_language_model(config: Any) -> None:
    """Raise ConfigError for an unknown language model. It names file, field and value."""
    text = config.get_text_config()
    name = f"{config.name_or_path}/config.json{'' if text is config else ': text_config'}"
    if text.model_type not in LANGUAGE_MODELS:
        raise ConfigError(
            f"{name}: model_type {text.model_type!r} is not supported as a language model; supported are "
            f"{', '.join(sorted(LANGUAGE_MODELS))}"
        )
    for part, (field, causal) in product((config, text), _DIRECTIONS.items()):
        if (value := getattr(part, field, None)) is not None and bool(value) != causal:
            raise ConfigError(f"{name}: models whose tokens see those after them ({field}: {value}) are not supported")
    for field in _CAPS:
        if (cap := getattr(text, field, None)) is not None and not cap > 0:
            raise ConfigError(f"{name}: {field} must be above 0 or null, got {cap}")
    _check_layers(text, name)


def _check_layers(text: Any, name: str) -> None:
    kinds = set(getattr(text, "layer_types", None) or ())
    known = OWN_LAYER_TYPES.get(text.model_type, LAYER_TYPES)
    if unknown := kinds - known:
        raise ConfigError(
            f"{name}: layer_types has {', '.join(sorted(unknown))}; supported are {', '.join(sorted(known))}"
        )
    windows = "sliding_attention" in kinds or text.model_type == "ministral"  # which makes masks of both kinds
    if windows and not getattr(text, "sliding_window", None):
        raise ConfigError(f"{name}: a model with sliding_attention needs a sliding_window, in tokens")
    if CHUNKED_ATTENTION in kinds and not getattr(text, "attention_chunk_size", None):
        raise ConfigError(f"{name}: a model with {CHUNKED_ATTENTION} needs an attention_chunk_size, in tokens")
    if kinds == {LINEAR_ATTENTION}:
        raise ConfigError(f"{name}: layer_types has {LINEAR_ATTENTION} alone; at least one layer must have another")
