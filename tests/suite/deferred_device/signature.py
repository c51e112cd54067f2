"""What an operation's schema tells: what it writes, whether it makes views, whether the host needs its values."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tag, Tensor
from torch._C import DispatchKey
from torch._ops import OpOverload

aten = torch.ops.aten

# One kernel, as on a GPU; torch would choose its parts by the device.
_UNDIVIDED = (aten.scaled_dot_product_attention.default,)
# Besides operations on elements, these take single values from the host on a GPU.
_TAKE_HOST_SCALARS = (
    aten.where,
    aten.floor_divide,
    aten.fill,
    aten.fill_,
    aten.masked_fill,
    aten.masked_fill_,
    aten.index_put,
    aten.index_put_,
)
_DIVIDED = DispatchKey.CompositeImplicitAutograd
_HOST_NEEDS_VALUES = (Tag.dynamic_output_shape, Tag.data_dependent_output)


class Argument(NamedTuple):
    """Where an argument is found: by position, else by name."""

    position: int
    name: str

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[self.position] if self.position < len(args) else kwargs.get(self.name)


class Signature(NamedTuple):
    """`returned` has for each result the argument that is written and returned, or None if the result is new."""

    decomposes: bool
    is_view: bool
    is_random: bool
    changes_sizes: bool
    takes_device: bool
    takes_host_scalars: bool
    host_needs_values: bool
    written: list[Argument]
    returned: list[Argument | None]


@functools.cache
def signature(operation: OpOverload[..., Any]) -> Signature:
    """Read an operation's schema and tags."""
    schema, tags = operation._schema, operation.tags
    aliases = [
        (Argument(position, each.name), each.alias_info)
        for position, each in enumerate(schema.arguments)
        if each.alias_info is not None
    ]
    written = {frozenset(alias.before_set): argument for argument, alias in aliases if alias.is_write}
    returned = [
        written.get(frozenset(each.alias_info.before_set)) if each.alias_info is not None else None
        for each in schema.returns
    ]
    undivided = operation in _UNDIVIDED
    return Signature(
        decomposes=not undivided and torch._C._dispatch_has_kernel_for_dispatch_key(operation._name, _DIVIDED),
        is_view=bool(aliases) and not written,
        is_random=not undivided and Tag.nondeterministic_seeded in tags,
        changes_sizes=Tag.inplace_view in tags,
        takes_device=any(each.name == "device" for each in schema.arguments),
        takes_host_scalars=Tag.pointwise in tags or operation.overloadpacket in _TAKE_HOST_SCALARS,
        host_needs_values=any(tag in tags for tag in _HOST_NEEDS_VALUES),
        written=list(written.values()),
        returned=returned,
    )


def over(kind: type, function: Callable[[Any], Any], value: Any) -> Any:
    """Replace what is of a kind in an operation's arguments or results."""
    if isinstance(value, kind):
        return function(value)
    if isinstance(value, list | tuple):
        replaced = [over(kind, function, each) for each in value]
        return type(value)(*replaced) if hasattr(value, "_fields") else type(value)(replaced)
    if isinstance(value, dict):
        return {name: over(kind, function, each) for name, each in value.items()}
    return value


def tensors_of(value: Any) -> list[Tensor]:
    """Return the tensors in an operation's arguments or results, in order."""
    found: list[Tensor] = []
    over(Tensor, found.append, value)
    return found
