"""View tensors that lie back to back in memory as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def back_to_back(tensors: Sequence[Tensor]) -> Tensor:
    """Join the tensors along dimension 0: in a view if they lie so in memory, else in a copy."""
    first = tensors[0]
    if len(tensors) == 1:
        return first
    ends = [tensor.data_ptr() + tensor.nbytes for tensor in tensors]
    memory_end = first.data_ptr() - first.storage_offset() * first.itemsize + first.untyped_storage().nbytes()
    if ends[:-1] != [tensor.data_ptr() for tensor in tensors[1:]] or ends[-1] > memory_end:
        return torch.cat(list(tensors))
    return first.as_strided((sum(len(tensor) for tensor in tensors), *first.shape[1:]), first.stride())
