"""Wrap a stream of CUDA as a `SideStream` and a `SideQueue`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from unifiedserve.device.base import DecodeStep, Mark, Pending

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

#: of streams: the lower goes first
HIGH, NORMAL = -1, 0


class CudaStream:
    """Run a stream of some priority, whose work is recorded in CUDA graphs. These share their memory."""

    tells = False

    def __init__(self, device: torch.device, priority: int = HIGH) -> None:
        self._stream = torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def start(self, work: Callable[[], T], then: Callable[[], object]) -> Pending[T]:
        """Issue the work now."""
        with self.use():
            return Issued(work(), self.mark())

    def close(self) -> None:
        """Do nothing: issued work is done without it."""

    def use(self) -> AbstractContextManager[Any]:
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        return torch.cuda.stream(self._stream)

    def record(self, work: Callable[[], object]) -> Callable[[], object]:
        """Do the work once as it is, and then record it. Kernels and libraries are loaded when first used."""
        work()
        graph = torch.cuda.CUDAGraph()
        # not by torch.cuda.graph: it waits for all that the GPU does, and empties torch's caches; other threads may use
        # CUDA meanwhile
        try:
            graph.capture_begin(self._pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        except BaseException:
            with suppress(RuntimeError):  # torch has not gone on to do so if it was CUDA that could not end the capture
                torch._C._cuda_endAllocateToPool(self._stream.device_index, self._pool)
            raise
        return graph.replay

    def mark(self) -> Mark:
        return _Event()

    def download(self, tokens: Tensor) -> DecodeStep:
        return _PinnedCopy(tokens)


class Issued(Generic[T]):
    """Hold what issued work returned, and a mark behind it: a `Pending`."""

    def __init__(self, returned: T, mark: Mark) -> None:
        self._returned = returned
        self._mark = mark

    def done(self) -> bool:
        return self._mark.done()

    def wait(self) -> T:
        self._mark.wait()
        return self._returned


class _Event:
    """Mark a place behind what was issued to the current stream."""

    def __init__(self) -> None:
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record()

    def done(self) -> bool:
        return bool(self._event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        self._event.synchronize()


class _PinnedCopy:
    def __init__(self, tokens: Tensor) -> None:
        self._host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
        self._host.copy_(tokens, non_blocking=True)
        self._done = _Event()

    def wait(self) -> None:
        self._done.wait()

    def tokens(self) -> list[int]:
        self.wait()
        tokens: list[int] = self._host.tolist()
        return tokens
