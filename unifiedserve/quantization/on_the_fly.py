"""Quantise the weights of a plain checkpoint as they are read."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from torch import Tensor

from unifiedserve.memory.tensors import Header, Weights
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.quantize import ZERO, quantize
from unifiedserve.quantization.scheme import MOST_INPUTS_OF_GROUP, Scheme, fitting

#: what to quantise to, by bits
DEFAULTS = {4: Scheme(4, 32), 8: Scheme(8, 128, ZERO)}
#: the same of vision towers, whose products have many rows: sums of large groups meet few scales
OF_TOWERS = {8: Scheme(8, 256, ZERO)}
#: of their matrices whose rows have few values that are much larger than the others: sums stay where they are made
OF_EVEN_ROWS = {8: Scheme(8, MOST_INPUTS_OF_GROUP, ZERO)}

SchemeOf = Callable[[str], Scheme | None]


class OnTheFly:
    """Read tensors and quantise some matrices.

    `scheme_of` tells how by their names, None for those that stay plain. Where the scheme's groups do not divide a
    matrix's inputs, its groups are smaller; it stays plain if none of 16 do. Matrices that are quantised already stay
    as they are. Some matrices have an `importance` of their inputs, by their names.
    """

    def __init__(
        self, source: Weights, scheme_of: SchemeOf, importance: Mapping[str, Tensor] = MappingProxyType({})
    ) -> None:
        self._source = source
        self._scheme_of = scheme_of
        self._importance = importance

    def headers(self) -> list[Header]:
        return [header._replace(scheme=self._scheme(header)) for header in self._source.headers()]

    def read(self) -> Iterator[tuple[str, Tensor | QuantizedMatrix]]:
        schemes = {header.name: header.scheme for header in self.headers()}
        for name, tensor in self._source.read():
            scheme = schemes[name]
            if scheme and isinstance(tensor, Tensor):
                yield name, quantize(tensor, scheme, self._importance.get(name))
            else:
                yield name, tensor

    def _scheme(self, header: Header) -> Scheme | None:
        wanted = self._scheme_of(header.name)
        if header.scheme or wanted is None or len(header.shape) != 2 or not header.dtype.is_floating_point:
            return header.scheme
        outputs, inputs = header.shape
        return fitting(wanted, inputs) if outputs * inputs else None
