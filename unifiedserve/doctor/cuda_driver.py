"""Call the CUDA driver as the probes need, through ctypes: no CUDA toolkit, no torch."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

LIBRARY = "libcuda.so.1"
IPC_LAZY_PEER_ACCESS = 1
ATTRIBUTES = {"multiprocessors": 16, "major": 75, "minor": 76}


class CudaError(Exception):
    """Signal the failure of a driver call: its name and CUDA's name for the reason."""


class IpcHandle(ctypes.Structure):
    """Hold a CUipcMemHandle: 64 opaque bytes, passed by value."""

    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


class Driver:
    """Call libcuda, initialised. Raises OSError when the library is absent, CudaError when it has no device."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(LIBRARY)
        self.call("cuInit", ctypes.c_uint(0))

    def call(self, name: str, *args: object) -> None:
        result = getattr(self.library, name)(*args)
        if result != 0:
            raise CudaError(f"{name}: {self.error_name(result)}")

    def error_name(self, result: int) -> str:
        text = ctypes.c_char_p()
        self.library.cuGetErrorName(ctypes.c_int(result), ctypes.byref(text))
        return text.value.decode() if text.value else f"CUDA error {result}"

    def version(self) -> str:
        number = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def device_count(self) -> int:
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def device_name(self, device: int) -> str:
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, ctypes.c_int(len(name)), ctypes.c_int(device))
        return name.value.decode()

    def device_memory(self, device: int) -> int:
        size = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(size), ctypes.c_int(device))
        return size.value

    def device_attribute(self, device: int, name: str) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(ATTRIBUTES[name]), ctypes.c_int(device))
        return value.value

    @contextmanager
    def context(self, device: int = 0) -> Iterator[None]:
        """Make the device's primary context current in this thread."""
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(device))
        try:
            self.call("cuCtxSetCurrent", context)
            yield
        finally:
            self.library.cuCtxSetCurrent(None)
            self.library.cuDevicePrimaryCtxRelease_v2(ctypes.c_int(device))

    @contextmanager
    def memory(self, size: int) -> Iterator[ctypes.c_uint64]:
        """Allocate `size` bytes of device memory."""
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        try:
            yield pointer
        finally:
            self.library.cuMemFree_v2(pointer)

    def fill(self, pointer: ctypes.c_uint64, word: int, size: int) -> None:
        """Fill `size` bytes with a 32-bit word, and wait until that is done."""
        self.call("cuMemsetD32_v2", pointer, ctypes.c_uint(word), ctypes.c_size_t(size // 4))
        self.call("cuCtxSynchronize")

    def word(self, pointer: ctypes.c_uint64, offset: int) -> int:
        """Read the 32-bit word `offset` bytes behind `pointer`."""
        value = ctypes.c_uint32()
        source = ctypes.c_uint64(pointer.value + offset)
        self.call("cuMemcpyDtoH_v2", ctypes.byref(value), source, ctypes.c_size_t(4))
        return value.value

    def filled_with(self, pointer: ctypes.c_uint64, word: int, size: int) -> bool:
        """Say whether the first, middle and last words are `word`."""
        return all(self.word(pointer, offset) == word for offset in (0, size // 8 * 4, size - 4))

    def export(self, pointer: ctypes.c_uint64) -> bytes:
        handle = IpcHandle()
        self.call("cuIpcGetMemHandle", ctypes.byref(handle), pointer)
        return bytes(handle.reserved)

    @contextmanager
    def imported(self, handle: bytes) -> Iterator[ctypes.c_uint64]:
        """Open memory that another process exported."""
        pointer = ctypes.c_uint64()
        opaque = IpcHandle.from_buffer_copy(handle)
        self.call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), opaque, ctypes.c_uint(IPC_LAZY_PEER_ACCESS))
        try:
            yield pointer
        finally:
            self.library.cuIpcCloseMemHandle(pointer)
