"""Test CUDA IPC: device memory of one process read and written by another."""

import time
from typing import Any

from unifiedserve.doctor.check import Check, Status, gibibytes
from unifiedserve.doctor.cuda_driver import CudaError, Driver
from unifiedserve.doctor.isolation import ProbeError, call

SIZE = 64 * 2**20
WRITTEN, ANSWERED = 0x5EED0001, 0x5EED0002
REMEDY = "GPU workers cannot share buffers: one process per container, or --ipc=host and the same GPU"


def probe() -> list[Check]:
    try:
        result = call("cuda_ipc:share", timeout=60)
    except ProbeError as error:
        return [Check("CUDA IPC", f"failed: {error}", Status.WARN, REMEDY)]
    value = f"{gibibytes(SIZE)} shared, opened in {result['open_ms']:.2f} ms, read and written on both sides"
    return [Check("CUDA IPC", value, details=result)]


def share() -> dict[str, Any]:
    """Export memory, let a child read and overwrite it, check what it wrote."""
    driver = Driver()
    with driver.context(), driver.memory(SIZE) as pointer:
        driver.fill(pointer, WRITTEN, SIZE)
        result = _importer(driver.export(pointer))
        if not driver.filled_with(pointer, ANSWERED, SIZE):
            raise CudaError("the other process's writes are not visible")
    return result


def receive(handle: str) -> dict[str, Any]:
    """Open the memory, check it and write the answer, as the child."""
    driver = Driver()
    with driver.context():
        start = time.perf_counter()
        with driver.imported(bytes.fromhex(handle)) as pointer:
            opened = time.perf_counter() - start
            if not driver.filled_with(pointer, WRITTEN, SIZE):
                raise CudaError("the opened memory does not hold what was written")
            driver.fill(pointer, ANSWERED, SIZE)
    return {"open_ms": 1000 * opened}


def _importer(handle: bytes) -> dict[str, Any]:
    return dict(call("cuda_ipc:receive", handle.hex(), timeout=40))
