"""Describe a family's vision tower in a GGUF file."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple

import gguf
import torch
from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.models.gguf.file import GGUFFile

TokenId = Callable[[str], int]


class Source(NamedTuple):
    """Name the file's tensors that one of a checkpoint is joined of.

    They are float32, in the file's shapes.
    """

    names: Sequence[str]
    join: Callable[[Sequence[Tensor]], Tensor] = lambda parts: parts[0]


class Tower(ABC):
    """Describe a family whose tower comes from a file of its own."""

    projector: ClassVar[str]  # as the file names it
    architectures: ClassVar[Collection[str]]  # of language models
    #: special tokens by the names that the family's processor has for them
    tokens: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def config(self, text: Mapping[str, Any], file: GGUFFile, token_id: TokenId) -> Mapping[str, Any]:
        """Return config.json for the language model `text`, but for that part."""

    @abstractmethod
    def processor(self, file: GGUFFile) -> Mapping[str, Any]:
        """Return what preprocessor_config.json says beside mean and deviation of pixels."""

    def video_processor(self, file: GGUFFile) -> Mapping[str, Any]:
        """Return what video_preprocessor_config.json says beside mean and deviation; nothing: there is none."""
        return {}

    @abstractmethod
    def hub_name(self, name: str) -> str:
        """Return the name that llama.cpp's converter knows a checkpoint's tensor by."""

    def source(self, name: str, present: Collection[str]) -> Source:
        """Return what a checkpoint's tensor is made of; `present` are the names of all that the file has."""
        return Source([stored_name(self.hub_name(name))])


def stored_name(name: str) -> str:
    """Return the name that a tensor has in a file. Raises ConfigError if llama.cpp has none for it."""
    stored = _names().get_name(name, try_suffixes=(".weight", ".bias"))
    if stored is None:
        raise ConfigError(f"{name}: GGUF files have no such tensor")
    return stored


def vision_sizes(file: GGUFFile) -> dict[str, Any]:
    """Return the sizes of a plain transformer, by the names of most families' configs."""
    return {
        "hidden_size": file.needed("vision.embedding_length"),
        "intermediate_size": file.needed("vision.feed_forward_length"),
        "num_hidden_layers": file.needed("vision.block_count"),
        "num_attention_heads": file.needed("vision.attention.head_count"),
        "image_size": file.needed("vision.image_size"),
        "patch_size": file.needed("vision.patch_size"),
        "layer_norm_eps": file.needed("vision.attention.layer_norm_epsilon"),
    }


def less_one(parts: Sequence[Tensor]) -> Tensor:
    """Return a gain as modules hold it that multiply by 1 plus it."""
    return parts[0] - 1


def joined(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(parts))


@cache
def _names() -> gguf.TensorNameMap:
    return gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 128)
