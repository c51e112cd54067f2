"""List the families by the `model_type` in a checkpoint's config.json."""

import importlib
from pathlib import Path
from typing import Any, NamedTuple

from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import read_json
from unifiedserve.models.hub import load_transformers
from unifiedserve.models.language_models import check_language_model
from unifiedserve.models.processor import Processor


class Family(NamedTuple):
    """Name the two sides of a family, each as `module:Class` below unifiedserve.models."""

    processor: str
    adapter: str


_TEXT_ONLY = Family("processor:Processor", "adapter:LanguageAdapter")

FAMILIES = {
    "gemma2": Family("processor:Processor", "families.gemma3_adapter:Gemma3TextAdapter"),
    "gemma3": Family("families.gemma3:Gemma3Processor", "families.gemma3_adapter:Gemma3Adapter"),
    "gemma3_text": Family("processor:Processor", "families.gemma3_adapter:Gemma3TextAdapter"),
    "gpt_oss": _TEXT_ONLY,
    "idefics3": Family("families.idefics3:Idefics3Processor", "families.idefics3_adapter:Idefics3Adapter"),
    "internvl": Family("families.internvl:InternVLProcessor", "picture_adapter:PictureAdapter"),
    "llama": _TEXT_ONLY,
    "llama4_text": _TEXT_ONLY,
    "llava": Family("families.llava:LlavaProcessor", "picture_adapter:PictureAdapter"),
    "llava_next": Family("families.llava_next:LlavaNextProcessor", "families.llava_next_adapter:LlavaNextAdapter"),
    "llava_next_video": Family(
        "families.llava_next_video:LlavaNextVideoProcessor", "families.llava_next_video_adapter:LlavaNextVideoAdapter"
    ),
    "llava_onevision": Family(
        "families.llava_onevision:LlavaOnevisionProcessor", "families.llava_onevision_adapter:LlavaOnevisionAdapter"
    ),
    "minicpmv4_6": Family("families.minicpmv4_6:MiniCPMProcessor", "families.minicpmv4_6_adapter:MiniCPMAdapter"),
    "ministral": _TEXT_ONLY,  # what transformers makes of a "mistral" that has layer_types
    "mistral": _TEXT_ONLY,
    "mllama": Family("families.mllama:MllamaProcessor", "families.mllama_adapter:MllamaAdapter"),
    "qwen2": _TEXT_ONLY,
    "qwen2_5_vl": Family(
        "families.qwen2_5_vl.processor:Qwen25VLProcessor", "families.qwen2_5_vl.adapter:Qwen25VLAdapter"
    ),
    "qwen2_moe": _TEXT_ONLY,
    "qwen2_vl": Family("families.qwen2_5_vl.processor:Qwen25VLProcessor", "families.qwen2_vl:Qwen2VLAdapter"),
    "qwen3": _TEXT_ONLY,
    "qwen3_moe": _TEXT_ONLY,
    "qwen3_5": Family("families.qwen3_vl:Qwen3VLProcessor", "families.qwen3_vl_adapter:Qwen3VLAdapter"),
    "qwen3_5_moe": Family("families.qwen3_vl:Qwen3VLProcessor", "families.qwen3_vl_adapter:Qwen3VLAdapter"),
    "qwen3_5_moe_text": _TEXT_ONLY,
    "qwen3_5_text": _TEXT_ONLY,
    "qwen3_vl": Family("families.qwen3_vl:Qwen3VLProcessor", "families.qwen3_vl_adapter:Qwen3VLAdapter"),
    "qwen3_vl_moe": Family("families.qwen3_vl:Qwen3VLProcessor", "families.qwen3_vl_adapter:Qwen3VLAdapter"),
    "smolvlm": Family("families.smolvlm:SmolVLMProcessor", "families.idefics3_adapter:Idefics3Adapter"),
}


def divides_encoder(config: Any) -> bool:
    """Tell whether ranks can share the heads of a config's vision encoder."""
    divides: bool = family_class(FAMILIES[config.model_type].adapter).divides_encoder
    return divides


def load_config(model_dir: Path) -> Any:
    """Load a checkpoint's transformers config.

    Raises ConfigError if there is none, or its family or language model is not supported.
    """
    raw = read_json(model_dir / "config.json")
    model_type = raw.get("model_type")
    if model_type not in FAMILIES:
        raise ConfigError(
            f"{model_dir}: model type {model_type!r} is not supported; supported are {', '.join(sorted(FAMILIES))}"
        )
    try:
        config = load_transformers().AutoConfig.from_pretrained(model_dir)
    except Exception as error:
        raise ConfigError(f"{model_dir / 'config.json'}: {error}") from error
    check_language_model(config)
    return config


def load_processor(model_dir: Path, chat_template: str | None = None) -> Processor:
    """Load a checkpoint's prompt and media side; `chat_template` (Jinja source) replaces the checkpoint's.

    Raises ConfigError for files that are not what they should be.
    """
    config = load_config(model_dir)
    make = family_class(FAMILIES[config.model_type].processor)
    try:
        processor: Processor = make(model_dir, config, chat_template)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"{model_dir}: its files are not what the model's processor needs: {reason}") from error
    return processor


def family_class(name: str) -> Any:
    """Return a class of `FAMILIES`."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(f"unifiedserve.models.{module}"), attribute)
