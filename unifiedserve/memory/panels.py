"""A model's tensors, of which some matrices are to lie in panels, as the processor's kernels read them.

A matrix `X.weight` is stored as `X.weight.panels`; one of codes also as `X.weight.scales` and `X.weight.zeros`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unifiedserve.device.cpu.matrix import Matrix
from unifiedserve.device.cpu.modules import packs
from unifiedserve.device.cpu.panels import panels_shape, to_panels
from unifiedserve.memory.tensors import Header, Tensors

SUFFIX = ".panels"


class PanelTensors:
    """The tensors of a source, its matrices whose names are `wanted` in panels of a dtype."""

    def __init__(self, source: Tensors, dtype: torch.dtype, wanted: Callable[[str], bool]) -> None:
        self._source = source
        self._dtype = dtype
        self._wanted = wanted

    def headers(self) -> list[Header]:
        """List what will be in memory, as the source does; raises ConfigError as it does."""
        return [self._stored(header) if self._packs(header) else header for header in self._source.headers()]

    def read(self) -> Iterator[tuple[str, Tensor]]:
        packed = {header.name for header in self._source.headers() if self._packs(header)}
        for name, tensor in self._source.read():
            if name in packed:
                yield name + SUFFIX, to_panels(tensor.to(self._dtype))
            else:
                yield name, tensor

    def _packs(self, header: Header) -> bool:
        matrix = len(header.shape) == 2 and header.dtype.is_floating_point
        return matrix and self._wanted(header.name) and packs(header.shape[1], self._dtype)

    def _stored(self, header: Header) -> Header:
        outputs, inputs = header.shape
        return Header(header.name + SUFFIX, header.dtype, panels_shape(outputs, inputs, self._dtype))


class StoredMatrix(NamedTuple):
    """What is in memory of a matrix."""

    panels: Tensor
    scales: Tensor | None = None
    zeros: Tensor | None = None

    def matrix(self, shape: Sequence[int]) -> Matrix:
        """Return it as [outputs, inputs]. Raises ValueError if it is of another shape."""
        outputs, inputs = shape
        matrix = Matrix(self.panels, outputs, inputs, self.scales, self.zeros)
        matrix.native()
        return matrix


def gather_matrices(weights: Mapping[str, Tensor]) -> dict[str, Tensor | StoredMatrix]:
    """Return tensors by their names, and what lies in panels by the names of the matrices."""
    parts: dict[str, dict[str, Tensor]] = {}
    gathered: dict[str, Tensor | StoredMatrix] = {}
    for name, tensor in weights.items():
        matrix, _, part = name.rpartition(".")
        if part in StoredMatrix._fields:
            parts.setdefault(matrix, {})[part] = tensor
        else:
            gathered[name] = tensor
    return gathered | {name: StoredMatrix(**found) for name, found in parts.items()}
