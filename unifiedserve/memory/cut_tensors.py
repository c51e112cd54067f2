"""Cut a model's tensors to one rank's part."""

from collections.abc import Callable, Iterator

from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.memory.tensors import Header, Weights
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.scheme import GROUPS, Scheme
from unifiedserve.ranks.parts import Cut


class CutTensors:
    """Cut the source's tensors whose names are `wanted`, as `cut` says. None: the whole tensor.

    Files are mapped into memory, so that no more of them is read.
    """

    def __init__(self, source: Weights, wanted: Callable[[str], bool], cut: Callable[[str], Cut | None]) -> None:
        self._source = source
        self._wanted = wanted
        self._cut = cut

    def headers(self) -> list[Header]:
        """List them. Raises ConfigError as the source does, and for codes that cannot be divided so."""
        return [_cut_header(header, self._cut(header.name)) for header in self._source.headers() if self._wants(header)]

    def read(self) -> Iterator[tuple[str, Tensor | QuantizedMatrix]]:
        for name, tensor in self._source.read():
            if self._wanted(name):
                cut = self._cut(name)
                yield name, tensor if cut is None else _cut(name, tensor, cut)

    def _wants(self, header: Header) -> bool:
        return self._wanted(header.name)


def _cut_header(header: Header, cut: Cut | None) -> Header:
    if cut is None:
        return header
    shape = [*header.shape[: cut.dim], cut.size, *header.shape[cut.dim + 1 :]]
    scheme = header.scheme and _cut_scheme(header.name, header.scheme, cut)
    return header._replace(shape=shape, scheme=scheme)


def _cut(name: str, tensor: Tensor | QuantizedMatrix, cut: Cut) -> Tensor | QuantizedMatrix:
    if isinstance(tensor, Tensor):
        return cut.of(tensor)
    scheme = _cut_scheme(name, tensor.scheme, cut)
    codes = cut.of(tensor.codes)
    scales, zeros = (_cut_table(table, tensor.scheme, scheme, cut) for table in (tensor.scales, tensor.zeros))
    return QuantizedMatrix(codes.contiguous(), scales, zeros, scheme)


def _cut_table(table: Tensor, whole: Scheme, scheme: Scheme, cut: Cut) -> Tensor:
    """Return what a part's groups have, of what the matrix's groups have [outputs, groups]."""
    if cut.dim == 0:
        return cut.of(table).contiguous()
    groups = table.repeat_interleave(whole.group // scheme.group, dim=1)
    return groups[:, cut.start // scheme.group : cut.stop // scheme.group].contiguous()


def _cut_scheme(name: str, scheme: Scheme, cut: Cut) -> Scheme:
    """Return the scheme of a part: groups are as large as its bounds let them be."""
    if cut.dim == 0:
        return scheme
    fitting = [group for group in GROUPS if scheme.group % group == cut.start % group == cut.stop % group == 0]
    if not fitting:
        raise ConfigError(f"{name}: its inputs {cut.start} to {cut.stop}, a rank's part, are no whole groups of codes")
    return scheme._replace(group=fitting[0])
