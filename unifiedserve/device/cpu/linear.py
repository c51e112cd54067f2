"""Run linear layers with the elementwise step behind them, in one pass.

The step is applied to float32 sums: nothing is read again, and in bfloat16 one rounding less is made. Weights in panels
have kernels of our own. Others use oneDNN, whose float32 products are also twice as fast as MKL's on AMD's processors.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from unifiedserve.device import linear as plain
from unifiedserve.device.base import Activation, Layer
from unifiedserve.device.cpu.modules import PanelLinear


@cache
def _fused(dtype: torch.dtype) -> bool:
    """Return whether oneDNN can do it here: bfloat16 needs AVX-512."""
    if not torch._C._has_mkldnn:
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def linear(x: Tensor, layer: Layer, activation: Activation = "none") -> Tensor:
    """Return [n, outputs] of x [n, inputs]; GELU is the exact one."""
    if isinstance(layer, PanelLinear):
        return functional.gelu(layer.then(x, "none")) if activation == "gelu" else layer.then(x, activation)
    if _fused(x.dtype):
        name = "swish" if activation == "silu" else activation
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, layer.weight, layer.bias, name, [], "none")
        return out
    return plain.linear(x, layer, activation)


def linear_plus(x: Tensor, layer: Layer, summand: Tensor) -> Tensor:
    """Return [n, outputs] of x [n, inputs] and summand [n, outputs]."""
    if isinstance(layer, PanelLinear):
        return layer.then(x, "plus", summand)
    if _fused(x.dtype):
        return _binary(x, layer, summand, "add")
    return plain.linear_plus(x, layer, summand)


def linear_times(x: Tensor, layer: Layer, factor: Tensor) -> Tensor:
    """Return [n, outputs] of x [n, inputs] and factor [n, outputs]."""
    if isinstance(layer, PanelLinear):
        return layer.then(x, "times", factor)
    if _fused(x.dtype):
        return _binary(x, layer, factor, "mul")
    return plain.linear_times(x, layer, factor)


def _binary(x: Tensor, layer: Layer, other: Tensor, operation: str) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, other, layer.weight, layer.bias, operation)
    return out
