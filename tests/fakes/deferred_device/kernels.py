"""Where torch's CPU kernels do less than a GPU's, or its runs on meta tensors tell something else than a GPU does."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .signature import aten


def _histogram(values: Tensor, *bounds: Any) -> Tensor:
    """Count integers, too."""
    return torch.histc(values.double(), *bounds).to(values.dtype)


def _attention_sizes(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
    """Lay out [batch, heads, tokens, dim] token by token, as attention's kernels do on a CPU and on a GPU."""
    if query.dim() != 4:
        return query.new_empty(*query.shape[:-1], value.shape[-1])
    batch, heads, tokens, _dim = query.shape
    return query.new_empty(batch, tokens, heads, value.shape[-1]).transpose(1, 2)


def _grouped_product_sizes(left: Tensor, right: Tensor, *rest: Any, **options: Any) -> Tensor:
    """Take any dtype: only bfloat16 is foreseen."""
    sizes: Tensor = aten._grouped_mm.default(left.to(torch.bfloat16), right.to(torch.bfloat16), *rest, **options)
    return sizes.to(left.dtype)


KERNELS: dict[Any, Callable[..., Any]] = {aten.histc.default: _histogram}
SIZES: dict[Any, Callable[..., Any]] = {
    aten.scaled_dot_product_attention.default: _attention_sizes,
    aten._grouped_mm.default: _grouped_product_sizes,
}
