"""Copy from host memory to a device, behind the work that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

#: CUDA copies so many bytes from any memory without waiting for the stream (CUDA Programming Guide, "Asynchronous
#: Concurrent Execution")
COPIED_AT_ONCE = 64 << 10


def upload_behind(host: Tensor, device: torch.device) -> Tensor:
    """Copy to a device behind its work, without waiting for that."""
    if device.type == "cuda" and host.nbytes > COPIED_AT_ONCE:
        host = host.pin_memory()  # torch keeps it until the copy is made
    return host.to(device, non_blocking=True)
