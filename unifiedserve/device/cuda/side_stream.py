"""A stream beside the one that a worker's other work is issued to, whose work can be recorded and done again."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor

from unifiedserve.device.base import DecodeStep


class SideStream(Protocol):
    """A queue of work of its own, which `Device.fence` does not wait for."""

    def use(self) -> AbstractContextManager[Any]:
        """Issue to it what is issued meanwhile, behind all that was issued elsewhere before."""

    def record(self, work: Callable[[], object]) -> Callable[[], object]:
        """Return what does the work again, on the same tensors, whatever their values; call it within `use`."""

    def download(self, tokens: Tensor) -> DecodeStep:
        """Copy int64 [n] to the host behind what was issued, which is a step; within `use`."""


class CudaStream:
    """A stream of high priority, whose work is recorded in CUDA graphs; these share their memory."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def use(self) -> AbstractContextManager[Any]:
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        return torch.cuda.stream(self._stream)

    def record(self, work: Callable[[], object]) -> Callable[[], object]:
        """Do the work once as it is, as kernels and libraries are loaded when first used, and then record it."""
        work()
        self._stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        # other threads may use CUDA meanwhile
        with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
            work()
        return graph.replay

    def download(self, tokens: Tensor) -> DecodeStep:
        return _PinnedCopy(tokens)


class _PinnedCopy:
    def __init__(self, tokens: Tensor) -> None:
        self._host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
        self._host.copy_(tokens, non_blocking=True)
        self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._done.record()

    def wait(self) -> None:
        self._done.synchronize()

    def tokens(self) -> list[int]:
        self.wait()
        tokens: list[int] = self._host.tolist()
        return tokens
