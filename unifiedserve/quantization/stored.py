"""Share what formats have in common: a module's tensors in a checkpoint, and the weight that they make."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.memory.number_types import name_of
from unifiedserve.memory.part import part_of
from unifiedserve.memory.tensors import Header, Load
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.scheme import Scheme, kernel_group
from unifiedserve.ranks.parts import Cut

FLOATS = (torch.float16, torch.bfloat16, torch.float32)


class Module(NamedTuple):
    """Hold the tensors of a module, by the last part of their names."""

    name: str
    tensors: Mapping[str, Header]

    def tensor(self, part: str, dtypes: tuple[torch.dtype, ...], *shapes: list[int]) -> Header:
        """Return a tensor; raises ConfigError if it is missing, of another dtype or of none of the shapes.

        Without shapes it is to be any matrix.
        """
        expected = f"{' or '.join(map(name_of, dtypes))} {' or '.join(map(str, shapes)) or 'of two dimensions'}"
        if part not in self.tensors:
            raise ConfigError(f"{self.name}.{part} is missing; expected {expected}")
        header = self.tensors[part]
        fits = header.shape in shapes if shapes else len(header.shape) == 2
        if header.dtype not in dtypes or not fits:
            raise ConfigError(f"{self.name}.{part} is {name_of(header.dtype)} {header.shape}; expected {expected}")
        return header

    def scheme(self, bits: int, inputs: int, group: int) -> Scheme:
        """Return how kernels see codes that are stored in groups of so many inputs.

        Raises ConfigError for groups that kernels do not take.
        """
        return Scheme(bits, kernel_group(f"{self.name}.weight", inputs, group))

    def weight(self, dtype: torch.dtype, shape: list[int], scheme: Scheme | None = None) -> Header:
        """Return the header of the module's weight; `dtype` is what it is, or was before it was quantised."""
        return Header(f"{self.name}.weight", dtype, shape, scheme)


class Axis(NamedTuple):
    """Locate a weight's outputs or inputs: along a dimension, so many to an element."""

    dim: int
    per: int = 1


class Axes(NamedTuple):
    """Say where a weight's outputs and inputs lie in one of its tensors; None: the tensor is for all of them."""

    outputs: Axis | None = None
    inputs: Axis | None = None

    def cut(self, region: Cut) -> Cut | None:
        """Return what a region of the weight needs of the tensor."""
        axis = self[region.dim]
        return axis and Cut(axis.dim, region.start // axis.per, -(-region.stop // axis.per))


class StoredWeight(NamedTuple):
    """Describe a module's weight.

    It has a header, the tensors that it is made of (the last part of their names), and a way to make it, or a region of
    it, of what these have.
    """

    header: Header
    parts: Mapping[str, Axes]
    decode: Callable[[Mapping[str, Tensor]], Tensor | QuantizedMatrix]

    def read(self, loads: Mapping[str, Load], cut: Cut | None) -> Tensor | QuantizedMatrix:
        """Read the weight by what reads its tensors, or a part; raises ConfigError for what cannot be decoded."""
        if cut is None or cut.blocks > 1:
            return part_of(self.header.name, self.decode({part: load(None) for part, load in loads.items()}), cut)
        region = cut.widened(self._unit(cut.dim), self.header.shape[cut.dim])
        value = self.decode({part: loads[part](axes.cut(region)) for part, axes in self.parts.items()})
        return part_of(self.header.name, value, cut.within(region))

    def _unit(self, dim: int) -> int:
        """Return the unit of outputs, or inputs, that can be decoded alone."""
        group = self.header.scheme.group if self.header.scheme and dim else 1
        return math.lcm(group, *(axis.per for axes in self.parts.values() if (axis := axes[dim])))


def group_axis(dim: int, group: int, inputs: int) -> Axis | None:
    """Return the axis of a tensor that has something for each group of inputs; None if there is a single group."""
    return Axis(dim, group) if group < inputs else None


class Format(Protocol):
    """Define how a checkpoint's quantised weights are stored."""

    def weight(self, module: Module) -> StoredWeight | None:
        """Return a module's weight, None if it is not quantised. Raises ConfigError if something does not fit."""


def group_size(config: Mapping[str, Any], inputs: int) -> int:
    """Return how many inputs share a scale: all of them for -1 and None. Raises ConfigError for what is no number."""
    size = config.get("group_size")
    if size is not None and not isinstance(size, int):
        raise ConfigError(f"quantization_config: group_size is {size!r}; expected a number of inputs, or -1 for all")
    return inputs if size in (None, -1) else int(size)


def pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern of modules' names; raises ConfigError if it is none."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"quantization_config: {text!r} is no pattern of names: {error}") from error
