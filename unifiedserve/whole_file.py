"""Write files whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, and its folder if need be; one that is there is replaced at once. Raises OSError."""
    own = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        own.write_bytes(content)
        own.replace(path)
    finally:
        with suppress(OSError):
            own.unlink(missing_ok=True)
