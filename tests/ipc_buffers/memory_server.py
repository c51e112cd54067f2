"""A process that works with memories and page pools as it is told: `python memory_server.py`, see memory_process.py.

Reads lines of JSON, [operation, arguments …], and answers each with one: {"value": …} or {"error": "Type: text"}.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ipc_buffers import Memory, PagedBuffer, PagePool, free_bytes, list_gpus


class Operations:
    """Handles, pools and views of this process, by the names that the other side gave them."""

    def __init__(self) -> None:
        self.memories: dict[str, Memory] = {}
        self.pools: dict[str, PagePool] = {}
        self.views: dict[str, object] = {}

    def gpus(self) -> list[dict[str, Any]]:
        facts = ("place", "name", "uuid", "capability", "total_bytes", "multiprocessors", "compute_mode", "driver")
        return [{fact: getattr(gpu, fact) for fact in facts} for gpu in list_gpus()]

    def free_bytes(self, place: str) -> int:
        return free_bytes(place)

    def create(self, handle: str, name: str, size: int, place: str) -> None:
        self.memories[handle] = Memory.create(name, size, place, manifest=f"made by {os.getpid()}".encode())

    def attach(self, handle: str, name: str) -> None:
        self.memories[handle] = Memory.attach(name)

    def create_pool(self, name: str, pages: int, page_bytes: int, place: str) -> None:
        self.pools[name] = PagePool.create(name, pages, page_bytes, place)
        self.memories[name] = self.pools[name].memory

    def lay_pool(self, name: str, memory: str, page_bytes: int) -> None:
        self.pools[name] = PagePool.over(name, self.memories[memory], page_bytes)
        self.memories[name] = self.pools[name].memory

    def attach_pool(self, name: str) -> None:
        self.pools[name] = PagePool.attach(name)
        self.memories[name] = self.pools[name].memory

    def allocate(self, name: str, count: int, request: int) -> list[int] | None:
        pages = self.pools[name].allocate(count, request)
        return None if pages is None else pages.tolist()

    def remember(self, name: str, pages: list[int]) -> list[int]:
        return self.pools[name].remember(pages).tolist()

    def recall(self, name: str, pages: list[int], epochs: list[int], request: int) -> int:
        return self.pools[name].recall(pages, epochs, request)

    def reclaim(self, name: str, request: int) -> int:
        return self.pools[name].reclaim(request)

    def free_pages(self, name: str) -> int:
        return self.pools[name].free_pages()

    def remembered_pages(self, name: str) -> int:
        return self.pools[name].remembered_pages()

    def unlink_pool(self, name: str) -> None:
        self.pools[name].unlink()

    def pool_data(self, name: str) -> None:
        self.pools[name].data()

    def paged_buffer(self, name: str, row_bytes: int) -> None:
        PagedBuffer(self.pools[name], row_bytes)

    def close_pool(self, name: str) -> None:
        self.memories.pop(name).close()
        self.pools.pop(name).close()

    def about(self, handle: str) -> dict[str, Any]:
        memory = self.memories[handle]
        return {
            "nbytes": memory.nbytes,
            "place": memory.place,
            "manifest": memory.manifest.decode(),
            "device": memory.__dlpack_device__(),
        }

    def write(self, handle: str, offset: int, data: str) -> None:
        self.memories[handle].write(offset, bytes.fromhex(data))

    def read(self, handle: str, offset: int, size: int) -> str:
        return self.memories[handle].read(offset, size).hex()

    def pin(self, handle: str, place: str) -> None:
        self.memories[handle].pin(place)

    def view(self, handle: str, view: str) -> int:
        """Hold a capsule of the memory; return the address in it."""
        self.views[view] = self.memories[handle].__dlpack__(max_version=(1, 0))
        return address_in(self.views[view])

    def drop(self, view: str) -> None:
        del self.views[view]

    def close(self, handle: str) -> None:
        self.memories.pop(handle).close()

    def unlink(self, handle: str) -> None:
        self.memories[handle].unlink()

    def attach_at_once(self, name: str, threads: int, rounds: int) -> None:
        """Attach to a memory, read it and close it again and again, in several threads."""

        def repeat() -> None:
            for _ in range(rounds):
                memory = Memory.attach(name)
                memory.read(0, 1)
                memory.close()

        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(repeat) for _ in range(threads)]:
                done.result()

    def live(self) -> int:
        """Return how much the stand-in holds for this process."""
        return int(ctypes.CDLL("libcuda.so.1").fake_cuda_live())

    def in_thread(self, operation: str, *arguments: object) -> object:
        """Do something in a thread that is new to the driver."""
        replies: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: replies.append(reply(getattr(self, operation), arguments)))
        thread.start()
        thread.join()
        return replies[0]

    def in_fork(self, operation: str, *arguments: object) -> object:
        """Do something in a child, which gives up all that it has inherited and ends as a Python program does."""
        source, sink = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(sink, json.dumps(reply(getattr(self, operation), arguments)).encode())
            sys.exit()
        os.close(sink)
        with os.fdopen(source, "rb") as answer:
            told = answer.read()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        return json.loads(told)


def address_in(capsule: object) -> int:
    """Return `data` of a versioned capsule: in DLManagedTensorVersioned, behind version, owner, deleter and flags."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    managed = get(capsule, b"dltensor_versioned")
    return int(ctypes.c_uint64.from_address(managed + 32).value)


def reply(operation: Callable[..., object], arguments: tuple[object, ...]) -> dict[str, Any]:
    try:
        return {"value": operation(*arguments)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def serve() -> None:
    operations = Operations()
    for line in sys.stdin:
        operation, *arguments = json.loads(line)
        print(json.dumps(reply(getattr(operations, operation), tuple(arguments))), flush=True)


if __name__ == "__main__":
    serve()
