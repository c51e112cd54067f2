"""Lay some matrices of a model out in panels, as the processor's kernels read them.

A matrix `X.weight` is stored as `X.weight.panels`; one of codes also as `X.weight.scales` and `X.weight.zeros`, which
are once in memory where all groups have the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unifiedserve.device.panels import OUTPUTS, Matrix, by_panel, pack_halves, packs, panels_shape, to_panels
from unifiedserve.memory.tensors import Header, Weights
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.scheme import Scheme


class PanelTensors:
    """Give the tensors of a source, with the `wanted` matrices in panels.

    These are of a dtype, of bfloat16 as the source has them, or of codes. A quantised one that is not wanted becomes
    plain.
    """

    def __init__(self, source: Weights, dtype: torch.dtype, wanted: Callable[[Header], bool]) -> None:
        self._source = source
        self._dtype = dtype
        self._wanted = wanted

    def headers(self) -> list[Header]:
        """List what will be in memory, in the source's order; raises ConfigError as the source does."""
        return [stored for header in self._source.headers() for stored in self._stored(header)]

    def read(self) -> Iterator[tuple[str, Tensor]]:
        packed = {header.name for header in self._source.headers() if self._packs(header)}
        for name, tensor in self._source.read():
            if name not in packed:
                yield name, tensor.dequantize() if isinstance(tensor, QuantizedMatrix) else tensor
            elif isinstance(tensor, QuantizedMatrix):
                yield from _code_panels(name, tensor)
            else:
                yield f"{name}.panels", to_panels(tensor.to(stored_dtype(tensor.dtype, self._dtype)))

    def _packs(self, header: Header) -> bool:
        matrix = len(header.shape) == 2 and header.dtype.is_floating_point and self._wanted(header)
        dtype = stored_dtype(header.dtype, self._dtype)
        return matrix and (header.scheme is not None or packs(header.shape[1], dtype))

    def _stored(self, header: Header) -> list[Header]:
        if not self._packs(header):
            return [header]
        outputs, inputs = header.shape
        if header.scheme is None:
            dtype = stored_dtype(header.dtype, self._dtype)
            return [Header(f"{header.name}.panels", dtype, panels_shape(outputs, inputs, dtype), exact=True)]
        return _code_headers(header.name, outputs, inputs, header.scheme)


def stored_dtype(own: torch.dtype, dtype: torch.dtype) -> torch.dtype:
    """Return of what a checkpoint's matrix is stored for a model of a dtype.

    For float32 one of bfloat16 stays so: the kernels widen it on the way, without a loss.
    """
    return own if (own, dtype) == (torch.bfloat16, torch.float32) else dtype


def _code_headers(name: str, outputs: int, inputs: int, scheme: Scheme) -> list[Header]:
    table = [-(-outputs // OUTPUTS), inputs // scheme.group, OUTPUTS]
    return [
        Header(f"{name}.panels", torch.uint8, panels_shape(outputs, inputs * scheme.bits // 8, torch.uint8)),
        Header(f"{name}.scales", torch.float16, table, exact=True),
        Header(f"{name}.zeros", torch.float16, table if scheme.zero is None else [1, 1, OUTPUTS], exact=True),
    ]


def _code_panels(name: str, matrix: QuantizedMatrix) -> Iterator[tuple[str, Tensor]]:
    codes = matrix.codes if matrix.scheme.bits == 8 else pack_halves(matrix.codes)
    yield f"{name}.panels", to_panels(codes)
    yield f"{name}.scales", by_panel(matrix.scales.half())
    zeros = matrix.zeros if matrix.scheme.zero is None else matrix.zeros[:OUTPUTS, :1]
    yield f"{name}.zeros", by_panel(zeros.half())


class StoredMatrix(NamedTuple):
    """Locate what is in memory of a matrix."""

    panels: Tensor
    scales: Tensor | None = None
    zeros: Tensor | None = None

    def matrix(self, shape: Sequence[int]) -> Matrix:
        """Return it as [outputs, inputs]. Raises ValueError if it is of another shape."""
        outputs, inputs = shape
        matrix = Matrix(self.panels, outputs, inputs, self.scales, self.zeros)
        matrix.native()
        return matrix


def matrix_name(name: str) -> str:
    """Return the name of the matrix of which a tensor in memory is a part; of any other tensor its own."""
    matrix, _, part = name.rpartition(".")
    return matrix if part in StoredMatrix._fields else name


def gather_matrices(weights: Mapping[str, Tensor]) -> dict[str, Tensor | StoredMatrix]:
    """Return tensors by their names. Those in panels come by the names of the matrices."""
    parts: dict[str, dict[str, Tensor]] = {}
    gathered: dict[str, Tensor | StoredMatrix] = {}
    for name, tensor in weights.items():
        matrix = matrix_name(name)
        if matrix != name:
            parts.setdefault(matrix, {})[name.rpartition(".")[2]] = tensor
        else:
            gathered[name] = tensor
    return gathered | {name: StoredMatrix(**found) for name, found in parts.items()}
