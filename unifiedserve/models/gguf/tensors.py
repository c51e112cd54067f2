"""Give the tensors of a GGUF file transformers' names and order of rows."""

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.memory.part import part_of
from unifiedserve.memory.tensors import Header, LoadWeight, whole
from unifiedserve.memory.weights import neighbours
from unifiedserve.models.gguf.names import language_name
from unifiedserve.models.gguf.table import Place, Table, read_table
from unifiedserve.models.gguf.text_config import COMPUTED
from unifiedserve.models.gguf.tower_tensors import TowerTensors
from unifiedserve.models.loading import empty_checkpoint
from unifiedserve.quantization.gguf_blocks import block_of, read_blocks, scheme_of
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.scheme import Scheme
from unifiedserve.ranks.parts import Cut

_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class GGUFTensors:
    """Read a model's tensors. The language model's that are stored in blocks are quantised matrices.

    Projections of the same input whose types differ all take the most bits and the smallest groups of any, so that
    kernels multiply them as one matrix. Their codes stay what they are.
    """

    def __init__(self, folder: Path, config: Any) -> None:
        """Take a folder that stands for files. Raise ConfigError for tensors that `config` has no place for."""
        table, text = read_table(folder), config.get_text_config()
        self._path, self._architecture = Path(table.path), table.architecture
        self._heads = {"q_proj": text.num_attention_heads, "k_proj": text.num_key_value_heads}
        wanted = {name: list(tensor.shape) for name, tensor in empty_checkpoint(config, torch.float32).items()}
        spoken = {name: own for name in wanted if (own := language_name(name))}
        names = _names(table, text.num_hidden_layers, spoken)
        self._places = {names[place.name]: place for place in table.tensors if place.name in names}
        self._schemes = _schemes(self._places)
        seen = {name: shape for name, shape in wanted.items() if name not in spoken}
        self._tower = TowerTensors(table.tower, seen) if table.tower else None

    def headers(self) -> list[Header]:
        language = [
            Header(name, _DTYPES.get(place.kind, torch.float32), place.shape, self._schemes[name])
            for name, place in self._places.items()
        ]
        return [*(self._tower.headers() if self._tower else ()), *language]

    def read(self) -> Iterator[tuple[str, Tensor | QuantizedMatrix]]:
        return whole(self.loads())

    def loads(self) -> Iterator[tuple[str, LoadWeight]]:
        """Map the file into memory. Of the tower's tensors each is read whole, whatever the part."""
        return chain(self._tower.loads() if self._tower else (), self._loads_of_language())

    def _loads_of_language(self) -> Iterator[tuple[str, LoadWeight]]:
        data = np.memmap(self._path, mode="r")
        for name, place in self._places.items():
            stored = data[place.offset : place.offset + place.size].reshape(place.shape[0], -1)
            yield name, partial(self._load, stored, name, place.kind)

    def _load(self, stored: NDArray[np.uint8], name: str, kind: str, cut: Cut | None) -> Tensor | QuantizedMatrix:
        """Read a tensor, or a part of it. Its rows are stored as uint8 [outputs, bytes]."""
        first, last = (0, len(stored)) if cut is None or cut.dim else (cut.start, cut.stop)
        rows = stored[self._order(len(stored), name)[first:last]]
        if cut is None or cut.dim == 0:
            return self._values(rows, name, kind)
        values, size = block_of(kind)
        region = cut.widened(values, rows.shape[1] // size * values)
        blocks = slice(region.start // values * size, region.stop // values * size)
        return part_of(name, self._values(rows[:, blocks], name, kind), cut.within(region))

    def _order(self, outputs: int, name: str) -> NDArray[np.intp]:
        """Undo llama.cpp's order of rows. It turns pairs of neighbours, where transformers turns halves."""
        rows = np.arange(outputs)
        heads = self._heads.get(name.split(".")[-2]) if self._architecture == "llama" else None
        return rows.reshape(heads, outputs // heads // 2, 2).swapaxes(1, 2).reshape(-1) if heads else rows

    def _values(self, rows: NDArray[np.uint8], name: str, kind: str) -> Tensor | QuantizedMatrix:
        scheme = self._schemes[name]
        return read_blocks(rows, kind, scheme) if scheme else self._plain(rows, name, kind)

    def _plain(self, rows: NDArray[np.uint8], name: str, kind: str) -> Tensor:
        values = torch.from_numpy(np.ascontiguousarray(rows)).view(_DTYPES[kind])
        values = values if len(self._places[name].shape) > 1 else values.flatten()
        is_gain = self._architecture.startswith("gemma") and name.endswith("norm.weight")
        return values - 1 if is_gain else values  # llama.cpp adds the 1 that Gemma multiplies by beside its gains


def _names(table: Table, layers: int, wanted: Mapping[str, str]) -> Mapping[str, str]:
    """Return the model's names of the file's tensors. Raises ConfigError for those that it has no place for.

    `wanted` has the names that they would have in a language model of its own, by the model's.
    """
    (architecture,) = (key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == table.architecture)
    known = gguf.get_tensor_name_map(architecture, layers)
    names = {known.get_name(own, try_suffixes=(".weight", ".bias")): name for name, own in wanted.items()}
    stored = [place.name for place in table.tensors if place.name not in COMPUTED]
    if unknown := sorted(name for name in stored if name not in names):
        raise ConfigError(f"{table.path}: the model of its metadata has no place for {', '.join(unknown[:5])}")
    return {name: names[name] for name in stored}


def _schemes(places: Mapping[str, Place]) -> Mapping[str, Scheme | None]:
    schemes = {name: None if place.kind in _DTYPES else scheme_of(place.kind) for name, place in places.items()}
    together: dict[str, set[Scheme]] = {}
    for name, scheme in schemes.items():
        if scheme:
            together.setdefault(neighbours(name)[0], set()).add(scheme)
    return {name: scheme and _finest(together[neighbours(name)[0]]) for name, scheme in schemes.items()}


def _finest(schemes: Collection[Scheme]) -> Scheme:
    """Return one that holds the codes of them all."""
    zeros = {scheme.zero for scheme in schemes}
    zero = zeros.pop() if len(zeros) == 1 else None
    return Scheme(max(scheme.bits for scheme in schemes), min(scheme.group for scheme in schemes), zero)
