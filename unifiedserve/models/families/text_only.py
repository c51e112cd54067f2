"""Language models without media: Llama, Mistral, Qwen2, Qwen3 and others whose layers are as theirs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unifiedserve.models.base import LanguageAdapter, Processor, refuse_sliding_windows


class TextProcessor(Processor):
    pass


class TextAdapter(LanguageAdapter):
    def __init__(self, config: Any, weights: Mapping[str, Tensor], dtype: torch.dtype, model_dir: Path) -> None:
        refuse_sliding_windows(config, model_dir)
        super().__init__(config, weights, dtype, model_dir)
