"""Detect the processor's instruction sets, and set the threads of the kernels."""

from __future__ import annotations

import platform
import threading
from functools import cache
from pathlib import Path

import torch

from unifiedserve import _core

#: what the kernels know, of weights, activations and the cache
KERNEL_DTYPES = frozenset({"float32", "bfloat16"})

_CPUINFO = Path("/proc/cpuinfo")


@cache
def cpu_features() -> frozenset[str]:
    """Return the instruction sets by their names in /proc/cpuinfo, such as "avx2" and "avx512_bf16"."""
    if not _CPUINFO.is_file():
        return frozenset()
    lines = (line.partition(":") for line in _CPUINFO.read_text().splitlines())
    return frozenset(next((values.split() for key, _, values in lines if key.strip() in ("flags", "Features")), ()))


def slowness() -> str | None:
    """Say why the language model is slow on this processor; None if it is not."""
    if platform.machine() == "x86_64" and _core.instruction_sets() == ["plain"]:
        return "this processor has no AVX2: the language model runs, but several times slower"
    return None


class _Own(threading.local):
    """Hold the calling thread's pool, of which `allowed` threads work.

    Each thread has one of its own, because a pool serves one caller at a time.
    """

    pool: _core.ThreadPool | None = None
    allowed = 0


_own = _Own()


def thread_pool() -> _core.ThreadPool:
    """Return the calling thread's pool, of which as many threads work as torch uses there."""
    threads, pool = torch.get_num_threads(), _own.pool
    if pool is None or pool.threads < threads:
        pool = _own.pool = _core.ThreadPool(threads)
    elif _own.allowed != threads:
        pool.use(threads)
    _own.allowed = threads
    return pool


def use_threads(threads: int) -> None:
    """Have the calling thread compute with so many threads, in torch and our kernels."""
    torch.set_num_threads(threads)
    thread_pool()  # a language model keeps the pool that it was built with, and does not ask
