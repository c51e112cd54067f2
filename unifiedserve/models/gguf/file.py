"""Open and check a GGUF file, and read its metadata."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import gguf

from unifiedserve.errors import ConfigError
from unifiedserve.models.gguf.table import Place
from unifiedserve.quantization.gguf_blocks import KINDS

PLAIN = ("F32", "F16", "BF16")
TOWER = "clip"  # the architecture of all vision towers' files


class GGUFFile:
    """Hold the metadata and tensors of a model's GGUF file, which stays mapped. Opening it takes seconds."""

    def __init__(self, path: Path) -> None:
        """Raise ConfigError for an unreadable file, a part of one, or unknown types of tensors."""
        self.path = path
        self._reader = open_gguf(path)
        if (parts := self.field(gguf.Keys.Split.LLM_KV_SPLIT_COUNT) or 1) > 1:
            raise ConfigError(f"{path}: this is one of {parts} parts: join them with `llama-gguf-split --merge` first")
        self.architecture = str(self.field("general.architecture"))
        self.tensors: Sequence[Place] = [_place(tensor, path) for tensor in self._reader.tensors]

    def field(self, key: str) -> Any:
        """Return a value of the metadata; None if there is none."""
        field = self._reader.get_field(key)
        return None if field is None else field.contents()

    def own_field(self, key: str) -> Any:
        """Return a value of the architecture's own metadata; None if there is none."""
        return self.field(f"{self.architecture}.{key}")

    def needed(self, key: str) -> Any:
        """Return a value of the architecture's own metadata. Raises ConfigError if there is none."""
        value = self.own_field(key)
        if value is None:
            raise ConfigError(f"{self.path}: its metadata lack {self.architecture}.{key}")
        return value

    def values(self, name: str) -> Any:
        """Return a tensor's values as numpy has them; None if there is no such tensor."""
        return next((tensor.data for tensor in self._reader.tensors if tensor.name == name), None)

    def shape(self, name: str) -> list[int] | None:
        """Return a tensor's shape, rows first; None if there is no such tensor."""
        return next((place.shape for place in self.tensors if place.name == name), None)


def open_gguf(path: Path) -> gguf.GGUFReader:
    """Open a GGUF file, which stays mapped. Raises ConfigError if that cannot be read here."""
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


def check_model(file: GGUFFile, architectures: Collection[str]) -> None:
    """Raise ConfigError for a file that holds no language model of one of these architectures."""
    if file.architecture == TOWER:
        raise ConfigError(f"{file.path}: this is a vision tower (mmproj); --model needs the language model's file")
    if file.architecture not in architectures:
        raise ConfigError(
            f"{file.path}: GGUF files of the architecture {file.architecture!r} are not supported; "
            f"those that are: {', '.join(sorted(architectures))}"
        )


def _place(tensor: gguf.ReaderTensor, path: Path) -> Place:
    kind = tensor.tensor_type.name
    if kind not in (*PLAIN, *KINDS):
        raise ConfigError(f"{path}: {tensor.name} is of type {kind}, which is not supported; {_known()}")
    shape = [int(size) for size in reversed(tensor.shape)]
    return Place(tensor.name, kind, shape, int(tensor.data_offset), int(tensor.n_bytes))


def _known() -> str:
    return f"types that are: {', '.join((*KINDS, *PLAIN))}"
