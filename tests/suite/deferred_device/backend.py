"""The device made known to torch: its name, its module `torch.deferred`, and what makes tensors on it."""

import functools
from typing import Any

import torch
from torch import Tensor
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from .operations import copy, dispatch, queue
from .signature import aten
from .stream import stream
from .tensor import NAME, DeferredTensor

_FACTORIES = (
    aten.empty.memory_format,
    aten.empty_strided.default,
    aten.zeros.default,
    aten.ones.default,
    aten.full.default,
    aten.scalar_tensor.default,
    aten.arange.default,
    aten.arange.start,
    aten.arange.start_step,
    aten.linspace.default,
    aten.eye.default,
    aten.eye.m,
    aten.tril_indices.default,
    aten.triu_indices.default,
)


class DeviceModule:
    """What torch and its users ask of `torch.deferred`."""

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def manual_seed_all(self, seed: int) -> None:
        """Take the seed that torch.manual_seed gives to all devices; there are no random numbers."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def synchronize(self, device: object = None) -> None:
        """Do all work that is queued. Raises RuntimeError if some of it fails."""
        stream.run()


@functools.cache
def register() -> Any:
    """Register the device with torch, once in a process; it is known as long as what is returned lives."""
    _setup_privateuseone_for_python_backend(NAME, DeviceModule())
    DeferredTensor.__torch_dispatch__ = staticmethod(dispatch)  # type: ignore[assignment]
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for operation in _FACTORIES:
        library.impl(operation, functools.partial(_make, operation), "PrivateUse1")
    attention = aten.scaled_dot_product_attention.default
    # torch.tensor and lists as indices get here past the tensors' own dispatch
    library.impl(aten._copy_from.default, _copy_from, "PrivateUse1")
    library.impl(aten._local_scalar_dense.default, _item, "PrivateUse1")
    library.impl(attention, lambda *args, **kwargs: dispatch(attention, (), args, kwargs), "AutogradPrivateUse1")
    return library


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    return copy(aten.copy_.default, target, source, non_blocking)


def _item(tensor: Tensor) -> Any:
    return dispatch(aten._local_scalar_dense.default, (), (tensor,))


def _make(operation: Any, *args: Any, **kwargs: Any) -> Any:
    return queue(operation, args, kwargs)
