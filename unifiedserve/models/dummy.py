"""Make random weights in a model's shapes: the speed of a checkpoint without its files.

All tensors are cut from one row of normal numbers, which repeats itself; where a tensor begins follows from its name.
The period is a prime, so no two rows of a matrix are alike.
"""

from collections.abc import Iterator
from copy import deepcopy
from math import prod
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

from unifiedserve.memory.tensors import Header, Load, load_of, whole
from unifiedserve.models.loading import empty_checkpoint

_PERIOD = 1_048_573
_DEVIATION = 0.02  # what most families begin training with


class DummyTensors:
    """Make the tensors that a checkpoint of `config` would hold: norms' weights 1, biases 0, all else random.

    The values of one follow from its name and shape, and from the deviation that `config` names.
    """

    def __init__(self, config: Any, dtype: torch.dtype) -> None:
        """Find the shapes; raises ConfigError if `config` makes no model."""
        self._tensors = empty_checkpoint(deepcopy(config), dtype)
        self._dtype = dtype
        self._deviation: float = getattr(config.get_text_config(), "initializer_range", None) or _DEVIATION

    def headers(self) -> list[Header]:
        """List the tensors by their names, the order in which checkpoints are saved."""
        return [Header(name, tensor.dtype, list(tensor.shape)) for name, tensor in self._tensors.items()]

    def read(self) -> Iterator[tuple[str, Tensor]]:
        return whole(self.loads())

    def loads(self) -> Iterator[tuple[str, Load]]:
        numbers = self._numbers(max(tensor.numel() for tensor in self._tensors.values()))
        for name, tensor in self._tensors.items():
            yield name, load_of(self._values(name, tensor.shape, numbers))

    def _numbers(self, largest: int) -> Tensor:
        """Return enough numbers to cut a tensor of `largest` elements from, wherever it begins."""
        generator = torch.Generator().manual_seed(0)
        period = torch.normal(0.0, self._deviation, (_PERIOD,), generator=generator)
        return period.to(self._dtype).repeat(2 + largest // _PERIOD)

    def _values(self, name: str, shape: torch.Size, numbers: Tensor) -> Tensor:
        if name.endswith("bias"):
            return torch.zeros(shape)
        if len(shape) == 1 and name.endswith("weight"):  # a norm's
            return torch.ones(shape)
        start = crc32(name.encode()) % _PERIOD
        return numbers[start : start + prod(shape)].view(shape)
