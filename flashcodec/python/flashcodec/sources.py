"""Open the bytes of videos and images: paths and bytes-like objects."""

import mmap
import os
import stat
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from flashcodec.errors import SourceError

PathSource = str | os.PathLike[str] | os.PathLike[bytes]
BytesSource = bytes | bytearray | memoryview | mmap.mmap | npt.NDArray[np.uint8]
PATHS = (str, os.PathLike)
BYTES = (bytes, bytearray, memoryview, mmap.mmap, np.ndarray)

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def bytes_of(source: BytesSource) -> memoryview:
    """Return the bytes of a source, not copied. Raises ValueError for arrays that are not plain bytes in a row."""
    if isinstance(source, np.ndarray) and (source.dtype != np.uint8 or source.ndim != 1):
        raise ValueError(f"a source array must be 1-d of uint8, got {source.ndim}-d of {source.dtype}")
    data: Any = source
    view = memoryview(data)
    if not view.c_contiguous:
        raise ValueError("a source array must be contiguous: give a copy of it")
    return view.cast("B") if view.nbytes else memoryview(b"")


def name_of(source: PathSource | BytesSource) -> str:
    """Return how errors name a source; bytes of a file name that are no text become escapes."""
    if isinstance(source, PATHS):
        return printable(os.fsdecode(source))
    return f"<{bytes_of(source).nbytes} bytes>"


def printable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


def open_path(path: PathSource) -> int:
    """Return the descriptor of a regular file that is opened for reading.

    Raises SourceError if there is none, or it cannot be read. It waits for no other process, as a named pipe's
    reader does.
    """
    try:
        return _open_regular(os.fspath(path))
    except OSError as error:
        raise SourceError(name_of(path), None, error.strerror or str(error)) from error
    except ValueError as error:  # a null character
        raise SourceError(name_of(path), None, str(error)) from error


def open_binary(path: PathSource) -> BinaryIO:
    """Open a file as `open_path` does, as a file object."""
    return os.fdopen(open_path(path), "rb")


def _open_regular(path: str | bytes) -> int:
    """Open a file that is, and then still is, a regular one: to open a device may do something."""
    _check_regular(os.stat(path))
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK)
    except BlockingIOError:  # a file server's client must give a lease on it back first
        descriptor = os.open(path, flags)
    try:
        _check_regular(os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_regular(found: Any) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise OSError(0, f"{kind}, not a regular file")
