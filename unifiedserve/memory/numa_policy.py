"""Choose the NUMA nodes from which the kernel takes memory."""

import ctypes
import errno
import logging
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)

_SET, _GET = {"x86_64": (238, 239), "aarch64": (237, 236)}.get(platform.machine(), (-1, -1))  # set_, get_mempolicy(2)
_PREFERRED = 1
_MOST_NODES = 1024
_WORD_BITS = 64
_Mask = ctypes.c_ulong * (_MOST_NODES // _WORD_BITS)


@contextmanager
def near_node(node: int | None) -> Iterator[None]:
    """Take this thread's memory from a node as far as it has room (None: as ever).

    Shared memory is taken all at once, by the thread that creates it, and stays where it was taken. Where the kernel
    refuses, the log says so.
    """
    if node is None:
        yield
        return
    before, nodes = _policy()
    wanted = _Mask()
    wanted[node // _WORD_BITS] = 1 << node % _WORD_BITS
    if error := _set(_PREFERRED, wanted):
        _log.warning("memory is not bound to node%d: %s", node, os.strerror(error))
        yield
        return
    try:
        yield
    finally:
        _set(before, nodes)


def _policy() -> tuple[int, "ctypes.Array[ctypes.c_ulong]"]:
    """Return this thread's policy and its nodes. Where that cannot be known it is the kernel's own."""
    mode, nodes = ctypes.c_int(0), _Mask()
    _call(_GET, ctypes.byref(mode), nodes, ctypes.c_ulong(_MOST_NODES), None, ctypes.c_ulong(0))
    return mode.value, nodes


def _set(mode: int, nodes: "ctypes.Array[ctypes.c_ulong]") -> int:
    """Set this thread's policy; return the error's number, 0 if there is none."""
    given = nodes if any(nodes) else None
    return _call(_SET, ctypes.c_int(mode), given, ctypes.c_ulong(_MOST_NODES if given is not None else 0))


def _call(number: int, *arguments: object) -> int:
    if number < 0:
        return errno.ENOSYS
    kernel = ctypes.CDLL(None, use_errno=True)
    return 0 if kernel.syscall(ctypes.c_long(number), *arguments) == 0 else ctypes.get_errno()
