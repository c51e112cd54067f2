"""What is known of the language models in checkpoints: others are refused before anything is served."""

from typing import Any

from unifiedserve.errors import ConfigError
from unifiedserve.memory.recurrent_state import LINEAR_ATTENTION
from unifiedserve.models.rope import check_rope

#: kinds of layers that our attention knows; which tokens the others see is in a mask that nobody makes here
LAYER_TYPES = frozenset({"full_attention", "sliding_attention", LINEAR_ATTENTION})


def check_language_model(config: Any) -> None:
    """Raise ConfigError, which names file, field and value, for a language model that is not known."""
    text = config.get_text_config()
    name = f"{config.name_or_path}/config.json{'' if text is config else ': text_config'}"
    if not all(getattr(each, "is_causal", True) for each in (config, text)):
        raise ConfigError(f"{name}: models whose tokens see those after them (is_causal: false) are not supported")
    _check_layers(text, name)
    check_rope(text, name)


def _check_layers(text: Any, name: str) -> None:
    kinds = set(getattr(text, "layer_types", None) or ())
    if unknown := kinds - LAYER_TYPES:
        raise ConfigError(
            f"{name}: layer_types has {', '.join(sorted(unknown))}; supported are {', '.join(sorted(LAYER_TYPES))}"
        )
    if kinds == {LINEAR_ATTENTION}:
        raise ConfigError(f"{name}: layer_types has {LINEAR_ATTENTION} alone; at least one layer must have another")
