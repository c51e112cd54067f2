"""Simulate candidates in processes. The case is sent to each of them once."""

import signal
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children, get_context
from types import TracebackType
from typing import Any, TypeVar

from unifiedserve.planning.case import Case

T = TypeVar("T")

_case: Case | None = None  # of a process of the pool


class Pool:
    """Call functions of the case in so many processes, or in this one (1)."""

    def __init__(self, case: Case, processes: int) -> None:
        self._case = case
        spawned = get_context("spawn")  # a fork would copy the threads of a progress bar
        self._executor = ProcessPoolExecutor(processes, spawned, _begin, (case,)) if processes > 1 else None
        self.processes = processes

    def __enter__(self) -> "Pool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor:
            self._executor.shutdown(wait=kind is None, cancel_futures=True)

    def stop(self) -> None:
        """End what the processes do, which knows no Ctrl-C."""
        if self._executor:
            self._executor.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.terminate()

    def map(self, function: Callable[..., T], calls: Iterable[tuple[Any, ...]]) -> list[T]:
        """Return the results of a module's function for the case and each of these arguments."""
        if self._executor is None:
            return [function(self._case, *arguments) for arguments in calls]
        return [each.result() for each in [self._executor.submit(_call, function, arguments) for arguments in calls]]


def _begin(case: Case) -> None:
    global _case
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's affair
    _case = case


def _call(function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    assert _case is not None
    return function(_case, *arguments)
