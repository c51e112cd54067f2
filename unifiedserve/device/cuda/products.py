"""Whether matrix products come out right: with a part of a GPU's multiprocessors, some versions of libraries got them
wrong (sglang-omni, documentation of static SM partitions, on an H200).
"""

import os

import torch
from torch import Tensor

from unifiedserve.device.cuda.sharing import THREADS
from unifiedserve.errors import ConfigError

#: rows, inner size and columns: of decode, of a prompt's chunk, and one with few results whose sums are split
SHAPES = ((1, 4096, 1024), (64, 4096, 1024), (512, 1024, 2048), (48, 16384, 64))
#: of the largest result: a sum that is rounded, and its parts, are off by less, what was seen to be wrong by far more
TOLERANCE = 2e-2


def check_products(device: torch.device, dtype: torch.dtype = torch.bfloat16) -> None:
    """Multiply matrices of whole numbers, and compare with the host's sums. Raises ConfigError if one differs."""
    for rows, inner, columns in SHAPES:
        left, right = _numbers(rows, inner, 7), _numbers(inner, columns, 5)
        found = (left.to(device, dtype) @ right.to(device, dtype)).double().cpu()
        expected = left.double() @ right.double()
        error = float((found - expected).abs().max() / expected.abs().max())
        if not error <= TOLERANCE:
            limit = os.environ.get(THREADS)
            where = f" with {limit} % of its threads: choose another --gpu-threads" if limit else ": do not trust it"
            shapes = f"{rows}x{inner} by {inner}x{columns}"
            raise ConfigError(f"the GPU multiplies {shapes} wrongly (off by {error:.2g}){where}")


def _numbers(rows: int, columns: int, period: int) -> Tensor:
    """Return small whole numbers, exact in any type and not below 0, so that each part of a sum counts."""
    places = torch.arange(rows)[:, None] * 3 + torch.arange(columns) * 5 + torch.arange(columns) ** 2 // 11
    return (places % period).float()
