"""The weights of a plain checkpoint, quantised as they are read."""

from collections.abc import Callable, Iterator

from torch import Tensor

from unifiedserve.memory.tensors import Header, Tensors
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.quantize import quantize
from unifiedserve.quantization.scheme import GROUPS, Scheme

#: what to quantise to, by bits
DEFAULTS = {4: Scheme(4, 32), 8: Scheme(8, 128)}


class OnTheFly:
    """Tensors of which the matrices that one `wants` by their names are quantised.

    Where the scheme's groups do not divide a matrix's inputs, its groups are smaller; it stays plain if none of 32 do.
    """

    def __init__(self, source: Tensors, scheme: Scheme, wants: Callable[[str], bool]) -> None:
        self._source = source
        self._scheme = scheme
        self._wants = wants

    def headers(self) -> list[Header]:
        return [header._replace(scheme=self._scheme_of(header)) for header in self._source.headers()]

    def read(self) -> Iterator[tuple[str, Tensor | QuantizedMatrix]]:
        schemes = {header.name: header.scheme for header in self.headers()}
        for name, tensor in self._source.read():
            scheme = schemes[name]
            yield name, quantize(tensor, scheme) if scheme else tensor

    def _scheme_of(self, header: Header) -> Scheme | None:
        if len(header.shape) != 2 or not header.dtype.is_floating_point or not self._wants(header.name):
            return None
        groups = (group for group in GROUPS if group <= self._scheme.group and header.shape[1] % group == 0)
        group = next(groups, None) if header.shape[0] * header.shape[1] else None
        return self._scheme._replace(group=group) if group else None
