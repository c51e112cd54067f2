"""Shared memory between processes: arenas, memory of a host or a GPU, page pools, paged buffers and message queues."""

from ipc_buffers._core import (
    Arena,
    ArenaError,
    ArenaInfo,
    Gpu,
    Memory,
    MessageQueue,
    MessageTooLarge,
    PagedBuffer,
    PageError,
    PagePool,
    free_bytes,
    list_arenas,
    list_gpus,
    remove_stale_arenas,
)
from ipc_buffers.page_index import PageIndex

__all__ = [
    "Arena",
    "ArenaError",
    "ArenaInfo",
    "Gpu",
    "Memory",
    "MessageQueue",
    "MessageTooLarge",
    "PageError",
    "PageIndex",
    "PagePool",
    "PagedBuffer",
    "free_bytes",
    "list_arenas",
    "list_gpus",
    "remove_stale_arenas",
]
