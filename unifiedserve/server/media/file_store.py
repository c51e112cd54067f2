"""Uploaded media: kept for a while in files without a name, so that nothing is left however the process ends."""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from cachetools import LRUCache

from unifiedserve.config import MIB, EngineConfig
from unifiedserve.errors import ErrorKind, RequestError

FILE_ID = "file-"
_KEPT = 4  # times the largest medium: what all files may take together
_MOST_FILES = 128  # which may take a descriptor each
_MOST_UPLOADS = 16  # at once
_RETRY_SECONDS = 5


class _Kept(NamedTuple):
    size: int
    file: BinaryIO
    lock: threading.Lock


class _Files(LRUCache[str, _Kept]):
    """Files by id, bounded in bytes and number: those not used for longest are closed to make room for new ones."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes, getsizeof=lambda kept: kept.size)

    def popitem(self) -> tuple[str, _Kept]:
        id, kept = super().popitem()
        _close(kept)
        return id, kept


class FileStore:
    """Uploaded files; those that were not used for longest make room for new ones."""

    def __init__(self, config: EngineConfig) -> None:
        self.max_bytes = config.max_media_mib * MIB
        self._files = _Files(_KEPT * self.max_bytes)
        self._uploads = 0

    @contextlib.contextmanager
    def uploading(self) -> Iterator[None]:
        """Count an upload while it lasts; raise RequestError 429 if that is one too many."""
        if self._uploads == _MOST_UPLOADS:
            raise RequestError(
                f"{_MOST_UPLOADS} uploads are under way; try again later.",
                ErrorKind.BUSY,
                code="too_many_uploads",
                retry_after=_RETRY_SECONDS,
            )
        self._uploads += 1
        try:
            yield
        finally:
            self._uploads -= 1

    def keep(self, file: BinaryIO, size: int) -> str:
        """Take over a file of so many bytes; returns its id."""
        if len(self._files) == _MOST_FILES:
            self._files.popitem()
        id = f"{FILE_ID}{secrets.token_hex(16)}"
        self._files[id] = _Kept(size, file, threading.Lock())
        return id

    async def read(self, id: str) -> bytes:
        """Return a file's bytes; raise RequestError 404 for one that was never there, or is there no more."""
        kept = self._files.get(id)
        data = None if kept is None else await asyncio.to_thread(_read, kept)
        if data is None:
            raise _no_file(id)
        return data

    def delete(self, id: str) -> None:
        """Close and forget a file; raises RequestError 404 as `read` does."""
        kept = self._files.pop(id, None)
        if kept is None:
            raise _no_file(id)
        _close(kept)

    def close(self) -> None:
        """Close all files."""
        for id in list(self._files):
            self.delete(id)


def _read(kept: _Kept) -> bytes | None:
    """Return all of it; None if it has been removed meanwhile."""
    with kept.lock:
        if kept.file.closed:
            return None
        kept.file.seek(0)
        return kept.file.read()


def _close(kept: _Kept) -> None:
    with kept.lock:
        kept.file.close()


def _no_file(id: str) -> RequestError:
    return RequestError(
        f"There is no file `{id}`, or it had to make room for others: upload it (again).",
        ErrorKind.NOT_FOUND,
        code="file_not_found",
    )
