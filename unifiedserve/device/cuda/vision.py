"""A vision encoder's steps on a GPU: torch's products and attention, over whole groups of equally long sequences."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from unifiedserve.device import linear as products
from unifiedserve.device.base import Rows


class CudaVision:
    """`VisionKernels` by torch's own operators."""

    linear = staticmethod(products.linear)
    linear_plus = staticmethod(products.linear_plus)
    linear_times = staticmethod(products.linear_times)

    def check_dtype(self, dtype: torch.dtype) -> None:
        """Do nothing: torch knows all of them."""

    def attend(self, qkv: Tensor, heads: int, cosine: Tensor, sine: Tensor, groups: Sequence[Rows]) -> Tensor:
        qkv = qkv.view(len(qkv), 3, heads, -1)
        query, key = (_rotated(qkv[:, part], cosine, sine) for part in (0, 1))
        out = torch.empty_like(query)
        for start, sequences, length in groups:
            rows = slice(start, start + sequences * length)
            shape = sequences, length, heads, -1
            q, k, v = (part[rows].reshape(shape).transpose(1, 2) for part in (query, key, qkv[:, 2]))
            attended = functional.scaled_dot_product_attention(q, k, v)
            out[rows] = attended.transpose(1, 2).flatten(0, 1)
        return out.flatten(1)

    def norm(self, hidden: Tensor, layer: Any) -> Tensor:
        weight = layer.weight.float()
        return functional.rms_norm(hidden.float(), weight.shape, weight, layer.variance_epsilon).to(hidden.dtype)


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate [N, heads, head_dim], whose halves are pairs, in float32."""
    first, second = x.float().chunk(2, dim=-1)
    cosine, sine = cosine[:, None], sine[:, None]
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1).to(x.dtype)
