"""Cut a tensor or a quantised matrix to a part."""

import math

from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.scheme import Scheme, largest_group
from unifiedserve.ranks.parts import Cut


def part_of(name: str, value: Tensor | QuantizedMatrix, cut: Cut | None) -> Tensor | QuantizedMatrix:
    """Return the part of a tensor of that name; None: all of it.

    Raises ConfigError for codes that cannot be divided so.
    """
    if cut is None:
        return value
    if isinstance(value, Tensor):
        return cut.of(value)
    scheme = scheme_of_part(name, value.scheme, cut)
    codes = cut.of(value.codes)
    scales, zeros = (_table(table, value.scheme, scheme, cut) for table in (value.scales, value.zeros))
    return QuantizedMatrix(codes.contiguous(), scales, zeros, scheme)


def scheme_of_part(name: str, scheme: Scheme, cut: Cut) -> Scheme:
    """Return the scheme of a part: groups are as large as its bounds let them be. Raises ConfigError as `part_of`."""
    if cut.dim == 0:
        return scheme
    group = largest_group(math.gcd(scheme.group, cut.start, cut.stop), scheme.group)
    if group is None:
        raise ConfigError(f"{name}: its inputs {cut.start} to {cut.stop}, a rank's part, are no whole groups of codes")
    return scheme._replace(group=group)


def _table(table: Tensor, whole: Scheme, scheme: Scheme, cut: Cut) -> Tensor:
    """Return what a part's groups have, of what the matrix's groups have [outputs, groups]."""
    if cut.dim == 0:
        return cut.of(table).contiguous()
    groups = table.repeat_interleave(whole.group // scheme.group, dim=1)
    return groups[:, cut.start // scheme.group : cut.stop // scheme.group].contiguous()
