"""The processor's instruction sets, and the threads of the kernels."""

import platform
from functools import cache
from pathlib import Path

import torch

from unifiedserve import _core

#: what the kernels know, of weights, activations and the cache
KERNEL_DTYPES = frozenset({torch.float32, torch.bfloat16})

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


def thread_pool() -> _core.ThreadPool:
    """Return this process's pool of as many threads as torch uses."""
    return _pool(torch.get_num_threads())


@cache
def _pool(threads: int) -> _core.ThreadPool:
    return _core.ThreadPool(threads)
