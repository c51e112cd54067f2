"""`ipc_buffers.Memory` on a GPU, as the engine is to use it: views in torch, copies from shared and pinned memory."""

import os
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from bench.gpu.figures import Figures
from ipc_buffers import Memory

MIB = 2**20
SIZE = 256 * MIB


def views(figures: Figures) -> None:
    """Copy from host memory to the GPU's through DLPack views, before and after pinning, and compare what arrives."""
    name = f"gpu-bench-{os.getpid()}"
    torch.zeros(1, device="cuda")  # so that making a context is not counted
    start = time.perf_counter()
    on_gpu = Memory.create(f"{name}-gpu", SIZE, "cuda:0")
    figures.add(create_ms=1e3 * (time.perf_counter() - start))
    shared = Memory.create(f"{name}-host", SIZE)
    try:
        _compare(figures, shared, from_dlpack(on_gpu), from_dlpack(shared))
    finally:
        for memory in (on_gpu, shared):
            memory.unlink()
            memory.close()


def _compare(figures: Figures, shared: Memory, target: Tensor, source: Tensor) -> None:
    figures.add(device=str(target.device), zeroed=not bool(target.any()))
    source.copy_(torch.arange(SIZE, dtype=torch.int64).to(torch.uint8))
    figures.add(shared_gb_s=_rate(lambda: target.copy_(source)))
    start = time.perf_counter()
    shared.pin("cuda:0")
    figures.add(pin_ms=1e3 * (time.perf_counter() - start), torch_knows_it_is_pinned=source.is_pinned())
    target.zero_()
    figures.add(pinned_gb_s=_rate(lambda: target.copy_(source, non_blocking=True)))
    start = time.perf_counter()
    target.copy_(source, non_blocking=True)
    figures.add(returns_after_us=1e6 * (time.perf_counter() - start))
    torch.cuda.synchronize()
    figures.add(arrives=bool((target.cpu() == source).all()))


def _rate(copy: Callable[[], object]) -> float:
    copy()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(5):
        copy()
    torch.cuda.synchronize()
    return 5 * SIZE / (time.perf_counter() - start) / 1e9
