"""Check whether matrix products come out right.

With a part of a GPU's multiprocessors, libraries get many of them wrong. On an H100 cuBLAS was wrong with 42, 54, 58,
78, 86, 98 and 104 of 132, and right with 12, 32, 66, 118 and all (bench/results/gpu/h100-eleventh/products.json);
sglang-omni's documentation says so of static partitions of an H200.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from unifiedserve.device.cuda.sharing import THREADS
from unifiedserve.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

#: rows, as in steps of decode and chunks of prompts
ROWS = (1, 17, 48, 64, 128, 512)
#: columns and inner size of weights: each share that was seen to be wrong is so in several, no share in all
WEIGHTS = ((2048, 1024), (1024, 4096), (4608, 3584), (3584, 3584), (64, 16384))
#: columns that are compared: as each kernel's tile has at least 64, some of each tile are
COMPARED = 128
#: of the largest result: a sum that is rounded, and its parts, are off by less, what was seen to be wrong by far more
TOLERANCE = 2e-2


def check_products(device: torch.device, dtype: torch.dtype | None = None) -> None:
    """Multiply whole numbers as layers do, in bfloat16 unless told, and compare with the host.

    Raises ConfigError if a result differs.
    """
    generator = torch.Generator().manual_seed(0)
    for columns, inner in WEIGHTS:
        weight = _numbers(columns, inner, 5, generator)
        there = weight.to(device, dtype or torch.bfloat16)
        for rows in ROWS:
            left = _numbers(rows, inner, 7, generator)
            error = _error(torch.nn.functional.linear(left.to(device, there.dtype), there), left, weight)
            if not error <= TOLERANCE:
                raise ConfigError(_wrong(f"{rows}x{inner} by {inner}x{columns}", error))


def _wrong(shapes: str, error: float) -> str:
    limit = os.environ.get(THREADS)
    where = f" with {limit} % of its threads: choose another --gpu-threads" if limit else ": do not trust it"
    return f"the GPU multiplies {shapes} wrongly (off by {error:.2g}){where}"


def _error(found: Tensor, left: Tensor, weight: Tensor) -> float:
    """Return the largest error in some columns, relative to the largest result."""
    step = max(1, len(weight) // COMPARED)
    expected = left @ weight[::step].T
    return float((found[:, ::step].float().cpu() - expected).abs().max() / expected.max())


def _numbers(rows: int, columns: int, end: int, generator: torch.Generator) -> Tensor:
    """Return small whole numbers, exact in any type. None is below 0, so that each part of a sum counts."""
    return torch.randint(0, end, (rows, columns), generator=generator, dtype=torch.int8).float()
