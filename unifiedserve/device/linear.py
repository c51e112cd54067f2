"""Run linear layers with the elementwise step behind them, by torch's own operators: any device can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

from unifiedserve.device.base import Activation, Layer

if TYPE_CHECKING:
    from torch import Tensor


def linear(x: Tensor, layer: Layer, activation: Activation = "none") -> Tensor:
    """Return [n, outputs] of x [n, inputs]; GELU is the exact one."""
    return activated(functional.linear(x, layer.weight, layer.bias), activation)


def activated(out: Tensor, activation: Activation) -> Tensor:
    """Return the activation of a product, which may be overwritten."""
    if activation == "silu":
        return functional.silu(out, inplace=True)
    return functional.gelu(out) if activation == "gelu" else out


def linear_plus(x: Tensor, layer: Layer, summand: Tensor) -> Tensor:
    """Return [n, outputs] of x [n, inputs] and summand [n, outputs]."""
    return functional.linear(x, layer.weight, layer.bias).add_(summand)


def linear_times(x: Tensor, layer: Layer, factor: Tensor) -> Tensor:
    """Return [n, outputs] of x [n, inputs] and factor [n, outputs]."""
    return functional.linear(x, layer.weight, layer.bias).mul_(factor)
