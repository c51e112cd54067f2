"""What the device does for an operation of torch: a view at once, all else when the host waits."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._ops import OpOverload

from .foretelling import Layout, foretell
from .signature import aten, over, signature, tensors_of
from .stream import stream
from .tensor import NAME, DeferredTensor, empty, wrap

Operation = OpOverload[..., Any]

_ALLOCATIONS = (aten.empty, aten.empty_strided, aten.empty_like, aten.new_empty, aten.new_empty_strided)


def dispatch(
    operation: Operation, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """Do an operation that has a tensor of the device among its arguments."""
    kwargs = kwargs or {}
    if special := _SPECIAL.get(operation):
        return special(operation, *args, **kwargs)
    rules = signature(operation)
    if rules.decomposes:
        # torch's own parts: `decompose` would prefer those written for compilers
        return operation._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
    if rules.is_view:
        return over(Tensor, wrap, operation(*_on_host(args), **_on_host(kwargs)))
    if rules.takes_device and _is_elsewhere(kwargs.get("device")):
        return operation(*_on_host(args), **_on_host(kwargs))
    if rules.host_needs_values and kwargs.get("output_size") is None:
        return _wait_and_do(operation, args, kwargs)
    return queue(operation, args, kwargs)


def queue(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Queue an operation and return tensors for its results, whose sizes a run on meta tensors tells.

    Raises RuntimeError for tensors on different devices, NotImplementedError for what the device cannot do, and at once
    what the run on meta tensors raises.
    """
    rules = signature(operation)
    if rules.is_random:
        raise NotImplementedError(f"{operation}: there are no random numbers on {NAME}")
    if rules.changes_sizes:
        raise NotImplementedError(f"{operation}: tensors of {NAME} keep their sizes and strides")
    args, kwargs = _on_one_device(operation, args, kwargs)
    results = _results(operation, args, kwargs)
    if operation.overloadpacket in _ALLOCATIONS:
        return _as_returned(results)
    host_args, host_kwargs = _on_host(args), _on_host(kwargs)
    if rules.takes_device:
        host_kwargs |= {"device": "cpu", "pin_memory": False}
    kernel = _KERNELS.get(operation, operation)
    # results that are arguments are written by the operation itself
    new = [None if argument else result for result, argument in zip(results, rules.returned, strict=True)]

    def run() -> None:
        found = kernel(*host_args, **host_kwargs)
        _store(found if len(new) > 1 else (found,), new)

    stream.queue(str(operation), run)
    return _as_returned(results)


def launch(function: Callable[..., object], *args: Any) -> None:
    """Queue a function as a kernel: it gets the host tensors under those of the device, and returns nothing."""
    name = getattr(function, "__name__", repr(function))
    for tensor in tensors_of(args):
        if not isinstance(tensor, DeferredTensor):
            raise _mixed(name)
    host_args = _on_host(args)
    stream.queue(name, lambda: function(*host_args))


def _results(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    return [
        argument.find(args, kwargs) if argument else over(Layout, lambda layout: wrap(empty(layout)), foretold)
        for foretold, argument in zip(foretell(operation, args, kwargs), signature(operation).returned, strict=False)
    ]


def _as_returned(results: list[Any]) -> Any:
    if not results:
        return None
    return tuple(results) if len(results) > 1 else results[0]


def _store(found: Any, results: list[Any]) -> None:
    for value, result in zip(found, results, strict=False):
        if result is None:
            continue
        for computed, tensor in zip(tensors_of(value), tensors_of(result), strict=True):
            if (computed.shape, computed.dtype) != (tensor.shape, tensor.dtype):
                raise TypeError(f"torch foretold {tensor}, and its CPU kernel made {computed.dtype}{computed.shape}")
            _on_host(tensor).copy_(computed)


def _wait_and_do(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args, kwargs = _on_one_device(operation, args, kwargs)
    stream.wait(str(operation))
    return over(Tensor, wrap, operation(*_on_host(args), **_on_host(kwargs)))


def _on_host(value: Any) -> Any:
    return over(Tensor, lambda tensor: tensor.host if isinstance(tensor, DeferredTensor) else tensor, value)


def _on_one_device(
    operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with a copy of each value that may come from the host."""
    rules = signature(operation)
    for argument in rules.written:
        if not all(isinstance(tensor, DeferredTensor) for tensor in tensors_of(argument.find(args, kwargs))):
            raise _mixed(operation)

    def check(tensor: Tensor) -> Tensor:
        if isinstance(tensor, DeferredTensor):
            return tensor
        if rules.takes_host_scalars and tensor.dim() == 0:
            return tensor.clone()
        raise _mixed(operation)

    return over(Tensor, check, args), over(Tensor, check, kwargs)


def _mixed(name: object) -> RuntimeError:
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {NAME}:0 and cpu! ({name})"
    )


def _is_elsewhere(device: Any) -> bool:
    return device is not None and torch.device(device).type != NAME


def copy(operation: Operation, target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """Copy within the device, from the host or to it; what does not block is read or written when the host waits."""
    if not isinstance(target, DeferredTensor):
        return _download(operation, target, source, non_blocking)
    if not isinstance(source, DeferredTensor):
        stream.check_not_recording(str(operation))
        stream.uploads += not non_blocking
        source = wrap(source if non_blocking else source.clone())
    result: Tensor = queue(operation, (target, source), {})
    return result


def _download(operation: Operation, target: Tensor, source: Tensor, non_blocking: bool) -> Tensor:
    foretell(operation, (target, source), {})
    host = _on_host(source)
    if non_blocking:
        stream.queue(str(operation), lambda: target.copy_(host))
    else:
        stream.wait(str(operation))
        target.copy_(host)
    return target


def _to_copy(
    operation: Operation, source: Tensor, *, device: Any = None, non_blocking: bool = False, **options: Any
) -> Tensor:
    if not _is_elsewhere(device):
        result: Tensor = queue(operation, (source,), options)
        return result
    if torch.device(device).type != "cpu":
        raise NotImplementedError(f"tensors of {NAME} are copied to the host only, not to {device}")
    options.pop("pin_memory", None)
    [layout] = foretell(operation, (source,), options)
    return _download(aten.copy_.default, empty(layout), source, non_blocking)


def _index(operation: Operation, tensor: Tensor, indices: list[Tensor | None], *rest: Any) -> Any:
    """Index by integers of the device: masks are waited for, and what is on the host is copied, and counted."""
    chosen: list[Tensor | None] = []
    for index in indices:
        if index is None:
            chosen.append(index)
            continue
        is_mask = index.dtype in (torch.bool, torch.uint8)
        if is_mask and index.shape != tensor.shape[len(chosen) : len(chosen) + index.dim()]:
            raise IndexError(
                f"a mask of {tuple(index.shape)} does not match {tuple(tensor.shape)} from dimension {len(chosen)} on"
            )
        if not isinstance(index, DeferredTensor):
            stream.copies.append(str(operation))
        elif is_mask:
            stream.wait(str(operation))
        chosen += _rows(index) if is_mask else [index if isinstance(index, DeferredTensor) else wrap(index.clone())]
    return queue(operation, (tensor, chosen, *rest), {})


def _rows(mask: Tensor) -> list[Tensor]:
    return [wrap(rows) for rows in _on_host(mask).nonzero().unbind(1)]


def _refuse(operation: Operation, *_: Any, **__: Any) -> Any:
    raise NotImplementedError(f"{operation}: not for tensors of {NAME}")


def _histogram(values: Tensor, *bounds: Any) -> Tensor:
    """Count integers, too, as on a GPU."""
    return torch.histc(values.double(), *bounds).to(values.dtype)


_KERNELS: dict[Operation, Callable[..., Any]] = {aten.histc.default: _histogram}
_SPECIAL: dict[Operation, Callable[..., Any]] = {
    aten.copy_.default: copy,
    aten._to_copy.default: _to_copy,
    aten.is_pinned.default: lambda *_: False,
    aten.detach_.default: lambda _operation, tensor: tensor,
    aten._pin_memory.default: _refuse,
    **dict.fromkeys((aten.index.Tensor, aten._unsafe_index.Tensor), _index),
    **dict.fromkeys((aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default), _index),
}
