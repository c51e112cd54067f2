"""Tensors of the device: sizes are known at once, values lie in host memory once the stream has run."""

from typing import Any, NoReturn

import torch
from torch import Tensor, UntypedStorage
from torch.nn import Parameter

from .foretelling import Layout
from .stream import stream

NAME = "deferred"


class DeferredTensor(Tensor):
    """A tensor of the device over `host`, the memory that its values come to lie in."""

    host: Tensor

    # what dispatch returns is returned as it is
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def data_ptr(self) -> int:
        """Return the address in host memory."""
        return self.host.data_ptr()

    def untyped_storage(self) -> UntypedStorage:
        """Return the host memory, which tells whether tensors share it."""
        return self.host.untyped_storage()

    def tolist(self) -> Any:
        """Wait, and return the values."""
        stream.wait("tolist")
        return self.host.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """Raise TypeError as tensors of a GPU do, unless `force`."""
        if force:
            return self.detach().cpu().numpy()
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def __array__(self, dtype: Any = None) -> Any:
        return self.numpy()

    def __dlpack_device__(self) -> NoReturn:
        raise BufferError(f"{self.device} is no device of DLPack's")

    def __dlpack__(self, **_: Any) -> NoReturn:
        self.__dlpack_device__()

    def __deepcopy__(self, memo: dict[int, Any]) -> "DeferredTensor":
        copied: DeferredTensor = self.detach().clone().requires_grad_(self.requires_grad)  # type: ignore[assignment]
        if isinstance(self, Parameter):
            copied = Parameter(copied, self.requires_grad)  # type: ignore[assignment]
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise NotImplementedError(f"tensors of {self.device} cannot be saved; save a copy on the host")

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"tensor(..., device='{self.device}', size={tuple(self.shape)}, dtype={self.dtype})"


def wrap(host: Tensor) -> DeferredTensor:
    """Make a tensor of the device over a host tensor's memory."""
    with torch.inference_mode(False):  # a view of a tensor that is older than inference mode must be none of it
        tensor: DeferredTensor = Tensor._make_wrapper_subclass(
            DeferredTensor,
            host.size(),
            host.stride(),
            host.storage_offset(),
            dtype=host.dtype,
            device=torch.device(NAME, 0),
        )
    tensor.host = host
    return tensor


def empty(layout: Layout) -> Tensor:
    """Allocate a host tensor that holds what nobody should read: NaN, or 0xCD in each byte."""
    host = torch.empty_strided(layout.size, layout.stride, dtype=layout.dtype, device="cpu")
    if host.dtype is torch.bool:
        return host.fill_(True)
    if host.is_floating_point() or host.is_complex():
        return host.fill_(torch.nan)
    return host.fill_(int.from_bytes(b"\xcd" * host.itemsize, "little", signed=host.dtype.is_signed))
