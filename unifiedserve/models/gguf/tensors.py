"""Give the tensors of a GGUF file transformers' names and order of rows."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.memory.tensors import Header
from unifiedserve.memory.weights import neighbours
from unifiedserve.models.gguf.table import Place, Table, read_table
from unifiedserve.models.loading import empty_checkpoint
from unifiedserve.quantization.gguf_blocks import EIGHT_BITS, read_blocks, scheme_of
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.scheme import Scheme

_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_COMPUTED = ("rope_freqs.weight",)  # config.json tells what it holds


class GGUFTensors:
    """Read a model's tensors. Those stored in blocks are quantised matrices.

    Projections of the same input whose types differ all become 8 bits, so that kernels multiply them as one matrix.
    """

    def __init__(self, folder: Path, config: Any) -> None:
        """Take a folder that stands for a file; raises ConfigError for tensors that `config` has no place for."""
        table = read_table(folder)
        self._path, self._architecture = Path(table.path), table.architecture
        self._heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        names = _names(table, config)
        self._places = {names[place.name]: place for place in table.tensors if place.name in names}
        self._schemes = _schemes(self._places)

    def headers(self) -> list[Header]:
        return [
            Header(name, _DTYPES.get(place.kind, torch.float32), place.shape, self._schemes[name])
            for name, place in self._places.items()
        ]

    def read(self) -> Iterator[tuple[str, Tensor | QuantizedMatrix]]:
        data = np.memmap(self._path, mode="r")
        for name, place in self._places.items():
            stored = data[place.offset : place.offset + place.size].reshape(place.shape[0], -1)
            rows = self._in_order(stored, name)
            scheme = self._schemes[name]
            yield name, read_blocks(rows, place.kind, scheme) if scheme else self._plain(rows, name, place)

    def _in_order(self, rows: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
        """Undo llama.cpp's order of rows. It turns pairs of neighbours, where transformers turns halves."""
        heads = self._heads.get(name.split(".")[-2]) if self._architecture == "llama" else None
        if not heads:
            return rows
        return rows.reshape(heads, len(rows) // heads // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)

    def _plain(self, rows: NDArray[np.uint8], name: str, place: Place) -> Tensor:
        values = torch.from_numpy(np.array(rows)).view(_DTYPES[place.kind]).view(place.shape)
        is_gain = self._architecture.startswith("gemma") and name.endswith("norm.weight")
        return values - 1 if is_gain else values  # llama.cpp adds the 1 that Gemma multiplies by beside its gains


def _names(table: Table, config: Any) -> Mapping[str, str]:
    """Return the model's names of the file's tensors. Raises ConfigError for those that it has no place for."""
    (architecture,) = (key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == table.architecture)
    known = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    wanted = empty_checkpoint(config, torch.float32)
    names = {known.get_name(name, try_suffixes=(".weight", ".bias")): name for name in wanted}
    stored = [place.name for place in table.tensors if place.name not in _COMPUTED]
    if unknown := sorted(name for name in stored if name not in names):
        raise ConfigError(f"{table.path}: the model of its metadata has no place for {', '.join(unknown[:5])}")
    return {name: names[name] for name in stored}


def _schemes(places: Mapping[str, Place]) -> Mapping[str, Scheme | None]:
    schemes = {name: None if place.kind in _DTYPES else scheme_of(place.kind) for name, place in places.items()}
    together: dict[str, set[Scheme]] = {}
    for name, scheme in schemes.items():
        if scheme:
            together.setdefault(neighbours(name)[0], set()).add(scheme)
    mixed = {name for name, scheme in schemes.items() if scheme and len(together[neighbours(name)[0]]) > 1}
    return schemes | dict.fromkeys(mixed, EIGHT_BITS)
