"""Give the tensors of a vision tower's GGUF file transformers' names."""

from collections.abc import Iterator, Mapping
from functools import partial
from math import prod
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from numpy.typing import NDArray
from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.memory.tensors import Header, Load, load_of
from unifiedserve.models.gguf.table import Place, Table
from unifiedserve.models.gguf.towers import TOWERS
from unifiedserve.models.gguf.towers.base import Source
from unifiedserve.ranks.parts import Cut

_UP, _DOWN = "ffn_up.", "ffn_down."


class TowerTensors:
    """Read a tower's tensors in the model's names and shapes, as float32."""

    def __init__(self, table: Table, wanted: Mapping[str, list[int]]) -> None:
        """Raise ConfigError for tensors without a place in the model, and for missing ones."""
        self._path, self._wanted = table.path, wanted
        self._places = _places(table)
        tower = TOWERS[table.architecture]
        self._sources = {name: tower.source(name, self._places.keys()) for name in wanted}
        used = {name for source in self._sources.values() for name in source.names}
        for names, problem in (
            (used - self._places.keys(), "it lacks"),
            (self._places.keys() - used, "the model of its metadata has no place for"),
        ):
            if names:
                raise ConfigError(f"{table.path}: {problem} {', '.join(sorted(names)[:5])}")
        for name, source in self._sources.items():
            self._check_size(name, source)

    def headers(self) -> list[Header]:
        return [Header(name, torch.float32, shape) for name, shape in self._wanted.items()]

    def loads(self) -> Iterator[tuple[str, Load]]:
        data = np.memmap(self._path, mode="r")
        for name, source in self._sources.items():
            yield name, partial(self._load, data, name, source)

    def _load(self, data: NDArray[np.uint8], name: str, source: Source, cut: Cut | None) -> Tensor:
        parts = [_values(data, self._places[stored]) for stored in source.names]
        return load_of(source.join(parts).reshape(self._wanted[name]))(cut)

    def _check_size(self, name: str, source: Source) -> None:
        shapes = [self._places[stored].shape for stored in source.names]
        if sum(map(prod, shapes)) != prod(self._wanted[name]):
            raise ConfigError(f"{self._path}: {', '.join(source.names)} of {shapes} do not make {self._wanted[name]}")


def _places(table: Table) -> Mapping[str, Place]:
    """Return the file's tensors by name. In old files an MLP's matrices have each other's, which is undone."""
    places = {place.name: place for place in table.tensors}
    up, width = places.get(f"v.blk.0.{_UP}weight"), places.get("v.blk.0.ln1.weight")
    if up is None or width is None or up.shape[0] != width.shape[0] or up.shape[0] == up.shape[1]:
        return places
    other = {_UP: _DOWN, _DOWN: _UP}
    return {_renamed(name, other): place for name, place in places.items()}


def _renamed(name: str, other: Mapping[str, str]) -> str:
    part = next((part for part in other if part in name), None)
    return name.replace(part, other[part]) if part else name


def _values(data: Any, place: Place) -> Tensor:
    stored = data[place.offset : place.offset + place.size].reshape(*place.shape[:-1], -1)
    return torch.from_numpy(np.array(gguf.dequantize(stored, Kind[place.kind]), np.float32)).view(place.shape)
