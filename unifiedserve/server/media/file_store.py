"""Keep uploaded media for a while. Their files have no names, so that nothing is left however the process ends.

A file belongs to the key that it came with. When they take too much together, the key with most makes room first.
"""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from unifiedserve.config import MIB, EngineConfig
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.server.access.caller import NOBODY, Caller
from unifiedserve.server.media.budget import unbounded
from unifiedserve.server.shelf import Bounds, Shelf

FILE_ID = "file-"
_KEPT = 4  # times the largest medium: what all files may take together
_MOST_FILES = 128  # which may take a descriptor each
_MOST_UPLOADS = 16  # at once
_RETRY_SECONDS = 5


class FileFacts(NamedTuple):
    """Describe a file beside its bytes: its size, names, and when it came, in seconds since 1970.

    `media_type` is what its sender called it.
    """

    size: int
    name: str = ""
    purpose: str = ""
    created: int = 0
    media_type: str = ""


class _Kept(NamedTuple):
    facts: FileFacts
    file: BinaryIO
    lock: threading.Lock


class FileStore:
    """Keep uploaded files, bounded in bytes and number. Those that were not used for longest make room for new ones."""

    def __init__(self, config: EngineConfig) -> None:
        self.max_bytes = config.media.max_media_mib * MIB
        self._files = Shelf("file", "upload it again", Bounds(_MOST_FILES, _KEPT * self.max_bytes), _close)
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

    def keep(self, file: BinaryIO, facts: FileFacts, caller: Caller = NOBODY) -> str:
        """Take over a file; returns its id."""
        id = f"{FILE_ID}{secrets.token_hex(16)}"
        self._files.put(id, _Kept(facts, file, threading.Lock()), facts.size, caller)
        return id

    async def read(self, id: str, caller: Caller = NOBODY, take: Callable[[int], None] = unbounded) -> bytes:
        """Return a file's bytes, once `take` has been told how many.

        Raises RequestError 404 if there is none of that id which the caller may use.
        """
        kept = self._files.get(id, caller)
        take(kept.facts.size)
        data = await asyncio.to_thread(_read, kept)
        if data is None:
            raise self._files.missing(id, caller)
        return data

    def facts(self, id: str, caller: Caller = NOBODY) -> FileFacts:
        """Return what is known of a file; raises RequestError 404 as `read` does."""
        return self._files.get(id, caller).facts

    def delete(self, id: str, caller: Caller = NOBODY) -> None:
        """Close and forget a file; raises RequestError 404 as `read` does."""
        self._files.remove(id, caller)

    def close(self) -> None:
        """Close all files."""
        self._files.clear()


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
