"""Copies between host and GPU: pageable memory, shared memory, and the same page-locked."""

import ctypes
import mmap
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from bench.gpu.figures import Figures
from unifiedserve.doctor.cuda_driver import Driver

MIB = 2**20
SIZE = 512 * MIB
REPEATS = 5
PORTABLE = 1


def rates(figures: Figures) -> None:
    """Measure copies of half a GiB each way, and what page-locking shared memory costs."""
    driver = Driver()
    with driver.context(), driver.memory(SIZE) as on_gpu:
        anonymous = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        rows = [_row(driver, on_gpu, anonymous, "pageable")]
        figures.add(gb_s=rows)
        shared = _shared_memory()
        rows.append(_row(driver, on_gpu, shared, "shared"))
        figures.add(gb_s=rows)
        address = _address(shared)
        figures.add(
            register_ms=_ms(lambda: driver.call("cuMemHostRegister_v2", address, ctypes.c_size_t(SIZE), PORTABLE))
        )
        rows.append(_row(driver, on_gpu, shared, "shared, page-locked"))
        figures.add(gb_s=rows)
        figures.add(unregister_ms=_ms(lambda: driver.call("cuMemHostUnregister", address)))


def _shared_memory() -> mmap.mmap:
    path = Path(f"/dev/shm/gpu-bench-{os.getpid()}")
    with path.open("w+b") as file:
        path.unlink()
        os.posix_fallocate(file.fileno(), 0, SIZE)
        return mmap.mmap(file.fileno(), SIZE)


def _row(driver: Driver, on_gpu: ctypes.c_uint64, host: mmap.mmap, kind: str) -> dict[str, object]:
    address, size = _address(host), ctypes.c_size_t(SIZE)
    host.write(bytes(SIZE))  # so that its pages are there
    host.seek(0)

    def rate(name: str, *arguments: object) -> float:
        times = [_ms(lambda: driver.call(name, *arguments)) for _ in range(REPEATS)]
        return SIZE / statistics.median(times) / 1e6

    return {
        "host memory": kind,
        "to the GPU": rate("cuMemcpyHtoD_v2", on_gpu, address, size),
        "from it": rate("cuMemcpyDtoH_v2", address, on_gpu, size),
    }


def _address(memory: mmap.mmap) -> ctypes.c_void_p:
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))


def _ms(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start)
