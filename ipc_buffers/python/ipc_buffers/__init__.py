"""Shared memory between processes: arenas, memory of a host or a GPU, page pools, paged buffers and message queues."""

from ipc_buffers._core import (
    Arena,
    ArenaError,
    ArenaInfo,
    Memory,
    MessageQueue,
    MessageTooLarge,
    PagedBuffer,
    PageError,
    PagePool,
    list_arenas,
    remove_stale_arenas,
)
from ipc_buffers.page_index import PageIndex

__all__ = [
    "Arena",
    "ArenaError",
    "ArenaInfo",
    "Memory",
    "MessageQueue",
    "MessageTooLarge",
    "PageError",
    "PageIndex",
    "PagePool",
    "PagedBuffer",
    "list_arenas",
    "remove_stale_arenas",
]
