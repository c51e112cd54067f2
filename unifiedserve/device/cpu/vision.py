"""Run a vision encoder's steps.

Those between its matrix products are in C++, with no pass over more than it must read.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from unifiedserve import _core
from unifiedserve.device.base import Layer, LinearWeights, SequenceGroup
from unifiedserve.device.cpu import linear as products
from unifiedserve.device.cpu.dtypes import KERNEL_DTYPES
from unifiedserve.device.cpu.matrix import Matrix
from unifiedserve.device.cpu.modules import PanelLinear, packs
from unifiedserve.device.cpu.processor import thread_pool
from unifiedserve.errors import ConfigError


class CpuVision:
    """Run `VisionKernels` on the processor."""

    rows_at_once = 2048  # what lies between two products stays in the cache
    linear = staticmethod(products.linear)
    linear_plus = staticmethod(products.linear_plus)

    def check_dtype(self, dtype: torch.dtype) -> None:
        if dtype not in KERNEL_DTYPES:
            raise ConfigError(f"a vision tower in {dtype}; supported are float32 and bfloat16")

    def layer(self, weight: Tensor, bias: Tensor) -> Layer:
        """Make a copy in panels where the kernels know such: other products differ in a row alone."""
        if not packs(weight.shape[1], weight.dtype):
            return LinearWeights(weight, bias)
        return PanelLinear(Matrix.of(weight), bias)

    def attend(self, qkv: Tensor, heads: int, cosine: Tensor, sine: Tensor, groups: Sequence[SequenceGroup]) -> Tensor:
        qkv = qkv.contiguous().view(len(qkv), 3, heads, -1)
        out = torch.empty_like(qkv[:, 0], memory_format=torch.contiguous_format)
        scale = qkv.shape[-1] ** -0.5
        _core.attend_sequences(thread_pool(), qkv, cosine, sine, groups, out, scale)
        return out.flatten(1)

    def norm(self, hidden: Tensor, layer: Any) -> Tensor:
        hidden = hidden.contiguous()
        out = torch.empty_like(hidden)
        _core.rms_norm(thread_pool(), hidden, layer.weight, layer.variance_epsilon, out)
        return out

    def gated(self, mlp: Any) -> Callable[[Tensor, Tensor], Tensor]:
        def run(x: Tensor, summand: Tensor) -> Tensor:
            inner = products.linear_times(x, mlp.up_proj, products.linear(x, mlp.gate_proj, "silu"))
            return products.linear_plus(inner, mlp.down_proj, summand)

        return run
