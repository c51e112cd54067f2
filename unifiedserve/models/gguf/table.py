"""Locate GGUF files' tensors, by JSON in the folder that stands for them.

The package `gguf` takes seconds to read a file with a large vocabulary; a start reads this table instead.
"""

from pathlib import Path

import msgspec

from unifiedserve.errors import NO_JSON, ConfigError
from unifiedserve.memory.checkpoint import GGUF_TABLE


class Place(msgspec.Struct, array_like=True, frozen=True):
    """Locate a tensor: its name and type as in the file, its shape with the rows first, and its bytes."""

    name: str
    kind: str
    shape: list[int]
    offset: int
    size: int


class Table(msgspec.Struct, frozen=True):
    """Hold a file's architecture, or its tower's projector, and all its tensors, in its order."""

    path: str
    architecture: str
    tensors: list[Place]
    tower: "Table | None" = None


def write_table(folder: Path, table: Table) -> None:
    (folder / GGUF_TABLE).write_bytes(msgspec.json.encode(table))


def read_table(folder: Path) -> Table:
    """Read what `write_table` has written. Raises ConfigError if that is not there any more."""
    try:
        return msgspec.json.decode((folder / GGUF_TABLE).read_bytes(), type=Table)
    except (OSError, *NO_JSON) as error:
        raise ConfigError(f"{folder / GGUF_TABLE}: {error}: remove {folder}, which is made again") from error
