"""Compute in a thread beside its starter, each on threads of its own.

Of each calling thread are: how many threads torch uses (OpenMP's and MKL's number), these threads (OpenMP keeps a team
for each caller) and the pools of our kernels. Of the whole process are: the number that torch takes in threads which
have not computed yet, and the choice of kernels. Torch's operators and our kernels release the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

import torch

from unifiedserve.device.base import Pending
from unifiedserve.device.cpu.processor import use_threads

T = TypeVar("T")


class SideThread:
    """Take half of the owner's threads while it has work, as a `SideQueue`. It gives them back at its end."""

    tells = True

    def __init__(self) -> None:
        self._all = torch.get_num_threads()
        self._own = max(1, self._all // 2)
        self._thread = ThreadPoolExecutor(1, "side-thread", torch.set_num_threads, (self._own,))

    def start(self, work: Callable[[], T], then: Callable[[], object]) -> Pending[T]:
        use_threads(max(1, self._all - self._own))
        future = self._thread.submit(work)
        future.add_done_callback(lambda _: then())
        return _Started(future, self._all)

    def use(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        self._thread.shutdown()
        use_threads(self._all)


class _Started(Generic[T]):
    """Work of which its owner has the threads again once it has waited."""

    def __init__(self, future: Future[T], threads: int) -> None:
        self._future = future
        self._threads = threads

    def done(self) -> bool:
        return self._future.done()

    def wait(self) -> T:
        try:
            return self._future.result()
        finally:
            use_threads(self._threads)
