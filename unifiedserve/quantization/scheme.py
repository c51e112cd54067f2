"""Describe how a matrix is quantised, as kernels know it."""

from typing import NamedTuple

from unifiedserve.errors import ConfigError

#: the numbers of inputs that share a scale in what kernels take
GROUPS = (256, 128, 64, 32, 16)
#: of 8 bits all inputs of a matrix may, too: a multiple of 64, and at most so many
MOST_INPUTS_OF_GROUP = 65_536
_LARGEST_STORED = 128  # of a file's matrices: larger groups of activations are coarser


class Scheme(NamedTuple):
    """Describe codes of 4 or 8 bits. `group` neighbouring inputs share a scale and a zero.

    Where all have the same `zero`, this is it; None: each group has its own.
    """

    bits: int
    group: int
    zero: int | None = None


def fitting(scheme: Scheme, inputs: int) -> Scheme | None:
    """Return the scheme with the largest group, up to its own, that divides the inputs.

    Kernels take it: it is one of GROUPS, or all inputs. None: they take none that does.
    """
    whole = inputs % 64 == 0 and inputs <= scheme.group
    group = inputs if whole else largest_group(inputs, scheme.group)
    return scheme._replace(group=group) if group else None


def largest_group(size: int, most: int) -> int | None:
    """Return the largest of GROUPS, up to `most`, that divides a size; None if none does."""
    return next((group for group in GROUPS if group <= most and size % group == 0), None)


def kernel_group(name: str, inputs: int, stored: int) -> int:
    """Return the largest of GROUPS, up to 128, that divides a matrix's `stored` group. It has so many inputs.

    Raises ConfigError naming the tensor if there is none, or the stored group does not divide the inputs.
    """
    if stored < 1 or inputs % stored:
        raise ConfigError(f"{name}: groups of {stored} do not divide its {inputs} inputs")
    if group := largest_group(stored, _LARGEST_STORED):
        return group
    raise ConfigError(f"{name}: groups of {stored} inputs (of {inputs}) are not multiples of 16, as kernels need them")
