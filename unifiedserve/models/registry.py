"""Which family serves a checkpoint: config.json's `model_type` decides."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import read_json
from unifiedserve.models.base import LanguageAdapter, Processor
from unifiedserve.models.hub import transformers


class Family(NamedTuple):
    module: str
    processor: str
    adapter: str


FAMILIES = {
    "qwen2_5_vl": Family("unifiedserve.models.qwen2_5_vl", "Qwen25VLProcessor", "Qwen25VLAdapter"),
}


def load_config(model_dir: Path) -> Any:
    """The transformers config of a checkpoint; raises ConfigError if there is none or its family is unsupported."""
    raw = read_json(model_dir / "config.json")
    model_type = raw.get("model_type")
    if model_type not in FAMILIES:
        raise ConfigError(
            f"{model_dir}: model type {model_type!r} is not supported; supported are {', '.join(sorted(FAMILIES))}"
        )
    try:
        return transformers.AutoConfig.from_pretrained(model_dir)
    except Exception as error:
        raise ConfigError(f"{model_dir / 'config.json'}: {error}") from error


def load_processor(model_dir: Path, chat_template: str | None = None) -> Processor:
    """The prompt and media side of a checkpoint; `chat_template` (Jinja source) replaces the checkpoint's."""
    config = load_config(model_dir)
    family = FAMILIES[config.model_type]
    make = getattr(importlib.import_module(f"{family.module}.processor"), family.processor)
    processor: Processor = make(model_dir, config, chat_template)
    return processor


def load_adapter(model_dir: Path, weights: Mapping[str, Tensor], dtype: torch.dtype) -> LanguageAdapter:
    """The model side of a checkpoint over its attached weights."""
    config = load_config(model_dir)
    family = FAMILIES[config.model_type]
    make = getattr(importlib.import_module(f"{family.module}.adapter"), family.adapter)
    adapter: LanguageAdapter = make(config, weights, dtype, model_dir)
    return adapter
