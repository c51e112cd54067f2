"""Keep on disk what the files of a folder have told, until one changes."""

import hashlib
import marshal
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from unifiedserve.whole_file import write_whole

_DIGEST_BYTES = 32


def kept_listing(folder: str, kept: Path, learn: Callable[[str], Any]) -> Any:
    """Return what `learn` makes of a folder: of dicts, sets, strings and the like.

    It comes from the file `kept` if that was written of the same files, and is written there otherwise, if it can be.
    """
    state = _digest(repr((sys.version, sorted(_states(folder)))).encode())
    with suppress(OSError, ValueError, EOFError, TypeError):
        return _read(kept, state)
    learned = learn(folder)
    body = marshal.dumps(learned)
    with suppress(OSError):
        write_whole(kept, _digest(state + body) + body)
    return learned


def _states(folder: str) -> Iterator[tuple[str, int, int]]:
    """Yield the path, size and time of change of each file."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _states(entry.path)
            else:
                state = entry.stat()
                yield entry.path, state.st_size, state.st_mtime_ns


def _read(kept: Path, state: bytes) -> Any:
    data = kept.read_bytes()
    body = data[_DIGEST_BYTES:]
    if data[:_DIGEST_BYTES] != _digest(state + body):
        raise ValueError("it is of other files, or damaged")
    return marshal.loads(body)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
