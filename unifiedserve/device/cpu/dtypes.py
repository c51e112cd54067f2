"""Name the number types of the kernels in C++, as torch does."""

import torch

from unifiedserve.device.cpu.processor import KERNEL_DTYPES as NAMES

KERNEL_DTYPES: frozenset[torch.dtype] = frozenset(getattr(torch, name) for name in NAMES)
