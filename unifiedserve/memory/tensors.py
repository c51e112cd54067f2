"""Define sources of a model's tensors: what `weights` needs of one, and the safetensors files of a checkpoint."""

from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import weight_files
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.scheme import Scheme
from unifiedserve.ranks.parts import Cut

T = TypeVar("T")
Load = Callable[[Cut | None], Tensor]  # reads a part of a tensor; None: the whole
LoadWeight = Callable[[Cut | None], Tensor | QuantizedMatrix]

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class Header(NamedTuple):
    """Describe a tensor without its values, with a `scheme` if it is a quantised matrix."""

    name: str
    dtype: torch.dtype
    shape: list[int]
    scheme: Scheme | None = None  # of a quantised matrix
    exact: bool = False  # it keeps its dtype in memory


class Tensors(Protocol):
    """Read a model's tensors, of which one at a time need be in memory."""

    def headers(self) -> list[Header]:
        """List all tensors, at least one with values, in the order of memory."""

    def read(self) -> Iterator[tuple[str, Tensor]]:
        """Yield each tensor of the headers once, by its name. They come in any order and any dtype."""


class Weights(Protocol):
    """Read a model's tensors as `Tensors`. Those whose headers have a scheme are quantised matrices."""

    def headers(self) -> list[Header]:
        """List all as `Tensors` does."""

    def read(self) -> Iterator[tuple[str, Tensor | QuantizedMatrix]]:
        """Yield each of the headers once, by its name, in any order."""


class StoredTensors(Tensors, Protocol):
    """Read a model's tensors as `Tensors`, or parts of them."""

    def loads(self) -> Iterator[tuple[str, Load]]:
        """Yield a function that reads a part, for each of the headers once. None: the whole."""


class StoredWeights(Weights, Protocol):
    """Read a model's tensors as `Weights`, or parts of them."""

    def loads(self) -> Iterator[tuple[str, LoadWeight]]:
        """Yield functions as `StoredTensors` does. A part is read with what whole words and groups of codes need."""


class SafetensorsFiles:
    """Read the tensors in a checkpoint's files, in the files' order."""

    def __init__(self, model_dir: Path) -> None:
        """Find the files; raises ConfigError if there are none or one is missing."""
        self._model_dir = model_dir
        self._files = weight_files(model_dir)

    def headers(self) -> list[Header]:
        """List what the files hold; raises ConfigError if that is nothing, or not readable."""
        headers = [header for path in self._files for header in _headers(path)]
        if not any(prod(header.shape) for header in headers):
            raise ConfigError(f"{self._model_dir}: the safetensors files hold no tensors")
        return headers

    def read(self) -> Iterator[tuple[str, Tensor]]:
        return whole(self.loads())

    def loads(self) -> Iterator[tuple[str, Load]]:
        """Map the files into memory, of which no more is read than the parts."""
        for path in self._files:
            with safe_open(path, framework="pt") as file:
                for name in file.offset_keys():
                    yield name, load_of(file.get_tensor(name))


def whole(loads: Iterator[tuple[str, Callable[[Cut | None], T]]]) -> Iterator[tuple[str, T]]:
    """Yield all tensors whole that functions read."""
    return ((name, load(None)) for name, load in loads)


def load_of(tensor: Tensor) -> Load:
    """Return a function that returns a part of a tensor."""
    return lambda cut: tensor if cut is None else cut.of(tensor)


def _headers(path: Path) -> Iterator[Header]:
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.offset_keys():
                tensor = file.get_slice(name)
                yield Header(name, _dtype(path, name, tensor.get_dtype()), tensor.get_shape())
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path}: not a readable safetensors file: {error}") from error


def _dtype(path: Path, name: str, stored: str) -> torch.dtype:
    if stored not in _DTYPES:
        raise ConfigError(f"{path}: tensor {name} is stored as {stored}, which is not supported")
    return _DTYPES[stored]
