"""What the vision tower does between its matrix products, in C++: no pass over more than it must read."""

from typing import Any

import torch
from torch import Tensor

from unifiedserve import _core
from unifiedserve.attention.cpu import thread_pool
from unifiedserve.errors import ConfigError
from unifiedserve.models.families.qwen2_5_vl.vision_layout import Layout

_ATTENTION = {torch.float32: _core.attend_sequences_float32, torch.bfloat16: _core.attend_sequences_bfloat16}
_NORMS = {torch.float32: _core.rms_norm_float32, torch.bfloat16: _core.rms_norm_bfloat16}


def check_dtype(dtype: torch.dtype) -> None:
    """Raises ConfigError for one that the kernels do not know."""
    if dtype not in _ATTENTION:
        raise ConfigError(f"a vision tower in {dtype}; supported are float32 and bfloat16")


def attend(qkv: Tensor, heads: int, layout: Layout) -> Tensor:
    """[N, heads * head_dim] of [N, 3 * heads * head_dim]: every row sees all rows of its sequence.

    Queries and keys are not yet rotated.
    """
    qkv = qkv.contiguous()
    rows, width = len(qkv), qkv.shape[1] // 3
    out = qkv.new_empty(rows, width)
    head_dim = width // heads
    _ATTENTION[qkv.dtype](
        thread_pool(),
        qkv.data_ptr(),
        rows,
        heads,
        head_dim,
        layout.cos.data_ptr(),
        layout.sin.data_ptr(),
        head_dim**-0.5,
        layout.groups,
        out.data_ptr(),
    )
    return out


def norm(hidden: Tensor, layer: Any) -> Tensor:
    """RMSNorm of [N, width], rounded once."""
    hidden = hidden.contiguous()
    out = torch.empty_like(hidden)
    _NORMS[hidden.dtype](
        thread_pool(),
        hidden.data_ptr(),
        len(hidden),
        hidden.shape[1],
        layer.weight.data_ptr(),
        layer.variance_epsilon,
        out.data_ptr(),
    )
    return out
