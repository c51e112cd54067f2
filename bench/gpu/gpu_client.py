"""A process that uses a GPU through libcuda alone, for `Partner`: its context, its memory, and others' memory."""

import ctypes
import time
from pathlib import Path
from typing import Any

from unifiedserve.doctor.cuda_driver import IPC_LAZY_PEER_ACCESS, Driver, IpcHandle

KERNELS = Path(__file__).with_name("kernels.ptx")


class GpuClient:
    """GPU 0 of a process. Memory goes by names; words are of 32 bits; times are in milliseconds."""

    def __init__(self) -> None:
        self._blocks: dict[str, tuple[ctypes.c_uint64, int]] = {}
        self._functions: dict[str, ctypes.c_void_p] = {}

    def start(self) -> dict[str, float]:
        """Initialise CUDA and take the primary context; return how long each took."""
        begin = time.perf_counter()
        self._driver = Driver()
        initialised = time.perf_counter()
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(0))
        self._call("cuCtxSetCurrent", context)
        return {"init_ms": 1e3 * (initialised - begin), "context_ms": 1e3 * (time.perf_counter() - initialised)}

    def memory_info(self) -> dict[str, int]:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return {"free": free.value, "total": total.value}

    def uuid(self) -> str:
        value = (ctypes.c_ubyte * 16)()
        self._call("cuDeviceGetUuid_v2", ctypes.byref(value), ctypes.c_int(0))
        return bytes(value).hex()

    def allocate(self, name: str, size: int) -> int:
        """Take memory; return its address."""
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        self._blocks[name] = pointer, size
        return pointer.value

    def free(self, name: str) -> None:
        self._call("cuMemFree_v2", self._blocks.pop(name)[0])

    def export(self, name: str) -> str:
        return self._driver.export(self._blocks[name][0]).hex()

    def open(self, name: str, handle: str, size: int) -> float:
        """Open memory of another process; return how long it took."""
        pointer, opaque = ctypes.c_uint64(), IpcHandle.from_buffer_copy(bytes.fromhex(handle))
        begin = time.perf_counter()
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), opaque, ctypes.c_uint(IPC_LAZY_PEER_ACCESS))
        self._blocks[name] = pointer, size
        return 1e3 * (time.perf_counter() - begin)

    def close(self, name: str) -> float:
        """Close memory of another process; return how long it took."""
        begin = time.perf_counter()
        self._call("cuIpcCloseMemHandle", self._blocks.pop(name)[0])
        return 1e3 * (time.perf_counter() - begin)

    def block(self, name: str) -> dict[str, int]:
        """Return where memory lies in the allocation that it is part of, and that one's size."""
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        pointer = self._blocks[name][0]
        self._call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), pointer)
        return {"offset": pointer.value - base.value, "size": size.value}

    def fill(self, name: str, word: int) -> None:
        pointer, size = self._blocks[name]
        self._driver.fill(pointer, word, size)

    def holds(self, name: str, word: int) -> bool:
        """Say whether memory begins, goes on and ends with a word."""
        pointer, size = self._blocks[name]
        return self._driver.filled_with(pointer, word, size)

    def first_word(self, name: str) -> int:
        return self._driver.word(self._blocks[name][0], 0)

    def work(self, steps: int) -> float:
        """Compute a chain of steps in one thread of the GPU; return how long it took."""
        if "result" not in self._blocks:
            self.allocate("result", 4)
        begin = time.perf_counter()
        self._launch("work", self._blocks["result"][0], ctypes.c_uint32(steps))
        self._call("cuCtxSynchronize")
        return 1e3 * (time.perf_counter() - begin)

    def fault(self) -> None:
        """Write where no memory is, which ends the context; raises CudaError."""
        self._launch("fault")
        self._call("cuCtxSynchronize")

    def _launch(self, name: str, *arguments: Any) -> None:
        """Launch a kernel of one thread."""
        if name not in self._functions:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self._call("cuModuleLoadData", ctypes.byref(module), KERNELS.read_bytes() + b"\0")
            self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            self._functions[name] = function
        pointers = (ctypes.c_void_p * max(1, len(arguments)))(
            *(ctypes.cast(ctypes.byref(argument), ctypes.c_void_p) for argument in arguments)
        )
        one, none = ctypes.c_uint(1), ctypes.c_uint(0)
        grid = (one,) * 6
        self._call("cuLaunchKernel", self._functions[name], *grid, none, None, pointers, None)

    def _call(self, name: str, *arguments: object) -> None:
        self._driver.call(name, *arguments)
