"""Write files whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def put_whole(path: Path) -> Iterator[Path]:
    """Give another path to write a file to, in the same folder; afterwards it is put in its place. Raises OSError."""
    own = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield own
        own.replace(path)
    finally:
        with suppress(OSError):
            own.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, and its folder if need be; one that is there is replaced at once. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with put_whole(path) as own:
        own.write_bytes(content)
