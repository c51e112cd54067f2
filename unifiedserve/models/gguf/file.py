"""Open and check a GGUF file, and read its metadata."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf

from unifiedserve.errors import ConfigError
from unifiedserve.models.gguf.table import Place
from unifiedserve.quantization.gguf_blocks import KINDS

#: as a file's `general.architecture` names them
ARCHITECTURES = ("gemma3", "llama", "qwen2", "qwen3")
PLAIN = ("F32", "F16", "BF16")
_PROJECTOR = "clip"


class GGUFFile:
    """Hold the metadata and tensors of a model's GGUF file, which stays mapped. Opening it takes seconds."""

    def __init__(self, path: Path) -> None:
        """Raise ConfigError for an unreadable GGUF file.

        One of an unknown architecture or type of tensors is refused, too.
        """
        self.path = path
        self._reader = _open(path)
        self.architecture = str(self.field("general.architecture"))
        _check(self.architecture, path)
        self.tensors: Sequence[Place] = [_place(tensor, path) for tensor in self._reader.tensors]

    def field(self, key: str) -> Any:
        """Return a value of the metadata; None if there is none."""
        field = self._reader.get_field(key)
        return None if field is None else field.contents()

    def own_field(self, key: str) -> Any:
        """Return a value of the architecture's own metadata; None if there is none."""
        return self.field(f"{self.architecture}.{key}")

    def values(self, name: str) -> Any:
        """Return a tensor's values as numpy has them; None if there is no such tensor."""
        return next((tensor.data for tensor in self._reader.tensors if tensor.name == name), None)


def _open(path: Path) -> gguf.GGUFReader:
    try:
        reader = gguf.GGUFReader(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except Exception as error:  # the package checks little of what it reads
        types = f" ({_known()})" if "GGMLQuantizationType" in str(error) else ""
        reason = f"{error}".splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"{path}: not a readable GGUF file, or not all of one: {reason}{types}") from error
    if reader.byte_order == "S":
        raise ConfigError(f"{path}: its numbers are stored big end first, which is not supported")
    return reader


def _check(architecture: str, path: Path) -> None:
    if architecture == _PROJECTOR:
        raise ConfigError(f"{path}: this is a vision tower (mmproj); --model needs the language model's file")
    if architecture not in ARCHITECTURES:
        raise ConfigError(
            f"{path}: GGUF files of the architecture {architecture!r} are not supported; "
            f"those that are: {', '.join(ARCHITECTURES)}"
        )


def _place(tensor: gguf.ReaderTensor, path: Path) -> Place:
    kind = tensor.tensor_type.name
    if kind not in (*PLAIN, *KINDS):
        raise ConfigError(f"{path}: {tensor.name} is of type {kind}, which is not supported; {_known()}")
    shape = [int(size) for size in reversed(tensor.shape)]
    return Place(tensor.name, kind, shape, int(tensor.data_offset), int(tensor.n_bytes))


def _known() -> str:
    return f"types that are: {', '.join((*KINDS, *PLAIN))}"
