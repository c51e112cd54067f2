"""Keep a value on disk until what it was made of changes."""

import hashlib
import marshal
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from unifiedserve.whole_file import write_whole

_DIGEST_BYTES = 32


def read_kept(path: Path, made_of: object) -> Any:
    """Return the value that was kept in a file.

    Raises OSError or ValueError if there is none, it is damaged, or it was made of something else or by another Python;
    and if somebody else could have written it, because a value may be code.
    """
    with path.open("rb") as file:
        state = os.fstat(file.fileno())
        if state.st_uid != os.geteuid() or state.st_mode & stat.S_IWOTH:
            raise ValueError(f"{path}: others can write it")
        data = file.read()
    body = data[_DIGEST_BYTES:]
    if data[:_DIGEST_BYTES] != _seal(made_of, body):
        raise ValueError(f"{path}: it was made of something else, or is damaged")
    return marshal.loads(body)


def write_kept(path: Path, made_of: object, value: Any) -> None:
    """Keep a value of what `marshal` knows, if there is a place; `made_of` is compared by its repr."""
    body = marshal.dumps(value)
    with suppress(OSError):
        write_whole(path, _seal(made_of, body) + body)


def _seal(made_of: object, body: bytes) -> bytes:
    state = _digest(repr((sys.version, made_of)).encode())
    return _digest(state + body)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
