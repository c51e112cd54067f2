"""The vision tower's steps between its matrix products, in C++: no pass over more than it must read."""

from typing import Any

import torch
from torch import Tensor

from unifiedserve import _core
from unifiedserve.attention.cpu import KERNEL_DTYPES, thread_pool
from unifiedserve.errors import ConfigError
from unifiedserve.models.families.qwen2_5_vl.vision_layout import Layout


def check_dtype(dtype: torch.dtype) -> None:
    """Raise ConfigError for a dtype that the kernels do not know."""
    if dtype not in KERNEL_DTYPES:
        raise ConfigError(f"a vision tower in {dtype}; supported are float32 and bfloat16")


def attend(qkv: Tensor, heads: int, layout: Layout) -> Tensor:
    """Attend from [N, 3 * heads * head_dim] to [N, heads * head_dim]: a row sees all rows of its sequence.

    Queries and keys are not yet rotated.
    """
    qkv = qkv.contiguous().view(len(qkv), 3, heads, -1)
    out = torch.empty_like(qkv[:, 0], memory_format=torch.contiguous_format)
    scale = qkv.shape[-1] ** -0.5
    _core.attend_sequences(thread_pool(), qkv, layout.cos, layout.sin, layout.groups, out, scale)
    return out.flatten(1)


def norm(hidden: Tensor, layer: Any) -> Tensor:
    """Return the RMSNorm of [N, width], rounded once."""
    hidden = hidden.contiguous()
    out = torch.empty_like(hidden)
    _core.rms_norm(thread_pool(), hidden, layer.weight, layer.variance_epsilon, out)
    return out
