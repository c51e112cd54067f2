"""Keep on disk what the files of a folder have told, until one changes."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from unifiedserve.kept_value import read_kept, write_kept


def kept_listing(folder: str, kept: Path, learn: Callable[[str], Any]) -> Any:
    """Return what `learn` makes of a folder: of dicts, sets, strings and the like.

    It comes from the file `kept` if that was written of the same files, and is written there otherwise, if it can be.
    """
    state = sorted(_states(folder))
    with suppress(OSError, ValueError):
        return read_kept(kept, state)
    learned = learn(folder)
    write_kept(kept, state, learned)
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
