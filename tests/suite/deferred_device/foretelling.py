"""The layouts of an operation's results, which a run on meta tensors tells before there are values."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from .signature import aten, over, signature, tensors_of


@dataclass(frozen=True, slots=True)
class Layout:
    """What is known of a tensor without its values."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Constant:
    """A number whose type counts: 1, 1.0 and True, though equal, promote to other dtypes."""

    type: type
    value: Any


def foretell(operation: OpOverload[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the operation's results with a Layout in the place of each tensor.

    Raises what torch raises for sizes and dtypes that do not fit, and NotImplementedError for `out` of another size.
    """
    return _foretell(operation, _freeze(args), tuple(kwargs), _freeze(tuple(kwargs.values())))


def layout(tensor: Tensor) -> Layout:
    return Layout(tuple(tensor.shape), tensor.stride(), tensor.dtype)


@functools.lru_cache(maxsize=8192)
def _foretell(
    operation: OpOverload[..., Any], args: tuple[Any, ...], names: tuple[str, ...], named: tuple[Any, ...]
) -> list[Any]:
    rules = signature(operation)
    meta_args, meta_kwargs = tuple(_thaw(args)), dict(zip(names, _thaw(named), strict=True))
    if rules.takes_device:
        meta_kwargs |= {"device": "meta", "pin_memory": False}
    written = tensors_of([argument.find(meta_args, meta_kwargs) for argument in rules.written])
    sizes = [each.shape for each in written]
    found = _SIZES.get(operation, operation)(*meta_args, **meta_kwargs)
    if sizes != [each.shape for each in written]:
        raise NotImplementedError(f"{operation}: tensors of the deferred device keep their sizes; give `out` its own")
    return [over(Tensor, layout, each) for each in (found if len(rules.returned) > 1 else (found,))]


def _freeze(value: Any) -> Any:
    if isinstance(value, Tensor):
        return layout(value)
    if isinstance(value, list | tuple):
        return tuple([_freeze(each) for each in value])
    return Constant(type(value), value)


def _thaw(value: Any) -> Any:
    if isinstance(value, Layout):
        return torch.empty_strided(value.size, value.stride, dtype=value.dtype, device="meta")
    if isinstance(value, Constant):
        return value.value
    return [_thaw(each) for each in value]


def _attention_sizes(
    query: Tensor, key: Tensor, value: Tensor, mask: Any = None, dropout_p: float = 0, *_: Any, **__: Any
) -> Tensor:
    """Lay out [batch, heads, tokens, dim] token by token, as attention's kernels do on a CPU and on a GPU."""
    if dropout_p:
        raise NotImplementedError("scaled_dot_product_attention: there is no dropout on the deferred device")
    if query.dim() != 4:
        return query.new_empty(*query.shape[:-1], value.shape[-1])
    batch, heads, tokens, _dim = query.shape
    return query.new_empty(batch, tokens, heads, value.shape[-1]).transpose(1, 2)


def _grouped_product_sizes(left: Tensor, right: Tensor, *rest: Any, **options: Any) -> Tensor:
    """Take any dtype: torch foresees bfloat16 only."""
    sizes: Tensor = aten._grouped_mm.default(left.to(torch.bfloat16), right.to(torch.bfloat16), *rest, **options)
    return sizes.to(left.dtype)


def _batch_norm_sizes(*args: Any) -> tuple[Tensor, ...]:
    """Leave out the batch's statistics, as the CPU's kernel does where nothing is trained."""
    normed, *statistics = aten.native_batch_norm.default(*args)
    return normed, *(each.new_empty(0) for each in statistics)


_SIZES: dict[Any, Callable[..., Any]] = {
    aten.scaled_dot_product_attention.default: _attention_sizes,
    aten.native_batch_norm.default: _batch_norm_sizes,
    aten._grouped_mm.default: _grouped_product_sizes,
}
