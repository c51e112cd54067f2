"""Run a vision encoder's steps on a GPU: few launches, since a tower's layers are short work for it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from unifiedserve.device.base import Activation, Layer, LinearWeights, SequenceGroup
from unifiedserve.device.linear import activated
from unifiedserve.device.llama import fused
from unifiedserve.device.operators import Multiply, Pointwise


class CudaVision:
    """Run `VisionKernels` by the given products, and attend over whole groups.

    Torch attends; a group's sequences are equally long.
    """

    rows_at_once = 8192  # fewer take the GPU no longer than launches take the host
    layer = LinearWeights

    def __init__(self, pointwise: Pointwise, multiply: Multiply) -> None:
        self._pointwise, self._multiply = pointwise, multiply

    def check_dtype(self, dtype: torch.dtype) -> None:
        """Do nothing: torch knows all of them."""

    def attend(self, qkv: Tensor, heads: int, cosine: Tensor, sine: Tensor, groups: Sequence[SequenceGroup]) -> Tensor:
        qkv = qkv.view(len(qkv), 3 * heads, -1)
        self._pointwise.rotate_heads(qkv[:, : 2 * heads], cosine, sine)
        attended = [_attend(qkv, heads, group) for group in groups]
        return attended[0] if len(attended) == 1 else torch.cat(attended)

    def norm(self, hidden: Tensor, layer: Any) -> Tensor:
        """Call torch's kernel, which computes in float32 where dtypes are the same."""
        return functional.rms_norm(hidden, layer.weight.shape, layer.weight, layer.variance_epsilon)

    def linear(self, x: Tensor, layer: Layer, activation: Activation = "none") -> Tensor:
        return activated(self._multiply(x, layer.weight, layer.bias), activation)

    def linear_plus(self, x: Tensor, layer: Layer, summand: Tensor) -> Tensor:
        return self._multiply(x, layer.weight, layer.bias).add_(summand)

    def gated(self, mlp: Any) -> Callable[[Tensor, Tensor], Tensor]:
        gate_up, down = fused(mlp.gate_proj, mlp.up_proj), _with_gaps(mlp.down_proj)

        def run(x: Tensor, summand: Tensor) -> Tensor:
            inner = self._pointwise.silu_mul(self._multiply(x, *gate_up), down.weight.shape[1])
            return self.linear_plus(inner, down, summand)

        return run


def _attend(qkv: Tensor, heads: int, group: SequenceGroup) -> Tensor:
    """Attend from [N, 3 * heads, head_dim] to a group's [rows, heads * head_dim], by views."""
    rows = group.sequences * group.length
    parts = qkv[group.start : group.start + rows].view(group.sequences, group.length, 3, heads, -1)
    q, k, v = parts.permute(2, 0, 3, 1, 4)
    attended = functional.scaled_dot_product_attention(q, k, v)
    return attended.transpose(1, 2).reshape(rows, -1)


def _with_gaps(layer: Any) -> LinearWeights:
    """Return a layer that takes the gaps between its matrix's rows as inputs. These are zeros (see memory/weights.py).

    Rows of a multiple of 16 bytes have the fast kernels.
    """
    weight: Tensor = layer.weight
    return LinearWeights(weight.as_strided((len(weight), weight.stride(0)), weight.stride()), layer.bias)
