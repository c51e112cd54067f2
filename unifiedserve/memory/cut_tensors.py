"""Cut a model's tensors to one rank's part."""

from collections.abc import Callable, Iterator

from torch import Tensor

from unifiedserve.memory.part import scheme_of_part
from unifiedserve.memory.tensors import Header, StoredWeights
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.ranks.parts import Cut


class CutTensors:
    """Read of the source's tensors whose names are `wanted` what `cut` says. None: the whole tensor."""

    def __init__(self, source: StoredWeights, wanted: Callable[[str], bool], cut: Callable[[str], Cut | None]) -> None:
        self._source = source
        self._wanted = wanted
        self._cut = cut

    def headers(self) -> list[Header]:
        """List them. Raises ConfigError as the source does, and for codes that cannot be divided so."""
        return [_cut_header(header, self._cut(header.name)) for header in self._source.headers() if self._wants(header)]

    def read(self) -> Iterator[tuple[str, Tensor | QuantizedMatrix]]:
        for name, load in self._source.loads():
            if self._wanted(name):
                yield name, load(self._cut(name))

    def _wants(self, header: Header) -> bool:
        return self._wanted(header.name)


def _cut_header(header: Header, cut: Cut | None) -> Header:
    if cut is None:
        return header
    shape = [*header.shape[: cut.dim], cut.size, *header.shape[cut.dim + 1 :]]
    scheme = header.scheme and scheme_of_part(header.name, header.scheme, cut)
    return header._replace(shape=shape, scheme=scheme)
