"""Recognise media that are the same by digests of their bytes."""

import os
import threading
from hashlib import blake2b, file_digest
from pathlib import Path

import msgspec
from cachetools import LRUCache

from unifiedserve.memory.content_keys import KEY_BYTES
from unifiedserve.messages.api import MediaInput
from unifiedserve.reading.work import opened

_MOST_FILES = 4096

_Version = tuple[str, int, int, int, int]  # path, device, inode, bytes, nanoseconds of the last change


class MediaDigests:
    """Digest media by their contents. Digests of files are kept as long as the files do not change.

    Blocking for as long as it takes to read the bytes, with the GIL released: call it from a thread.
    """

    def __init__(self) -> None:
        self._files: LRUCache[_Version, bytes] = LRUCache(_MOST_FILES)
        self._lock = threading.Lock()

    def of(self, media: MediaInput) -> bytes:
        """Return the digest of a medium, 16 bytes. Raises OSError for a file that cannot be read."""
        found = opened(media.where)
        if isinstance(found, Path):
            return self._of_file(found)
        digest = blake2b(found, digest_size=KEY_BYTES)
        if media.frames:
            digest.update(msgspec.msgpack.encode(media.frames))
        return digest.digest()

    def _of_file(self, path: Path) -> bytes:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            version = str(path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
            with self._lock:
                if known := self._files.get(version):
                    return bytes(known)
            digest = file_digest(file, lambda: blake2b(digest_size=KEY_BYTES)).digest()
        with self._lock:
            self._files[version] = digest
        return digest
