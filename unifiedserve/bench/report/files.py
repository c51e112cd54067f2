"""Keep runs as files: JSON that holds all that a run has found, and says what it is."""

from pathlib import Path
from typing import Literal

import msgspec

from unifiedserve.bench.records import Run
from unifiedserve.errors import NO_JSON, ConfigError
from unifiedserve.whole_file import write_whole

FORMAT: Literal["unifiedserve-bench-run"] = "unifiedserve-bench-run"
VERSION = 1


class _Head(msgspec.Struct, kw_only=True):
    format: Literal["unifiedserve-bench-run"]
    version: int


class _Document(_Head, kw_only=True):
    run: Run


def save_run(run: Run, path: Path) -> None:
    """Write a run. Raises ConfigError if it cannot be written."""
    replace_file(path, msgspec.json.encode(_Document(format=FORMAT, version=VERSION, run=run)))


def replace_file(path: Path, content: bytes) -> None:
    """Write a file, and its folder if need be; one that is there is replaced at once, never in part.

    Raises ConfigError if it cannot be written.
    """
    try:
        write_whole(path, content)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}): choose another place") from None


def load_run(path: Path) -> Run:
    """Read a run as it was written. Raises ConfigError if the file holds none, or one of another version."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    try:
        version = msgspec.json.decode(content, type=_Head).version
    except NO_JSON:
        raise ConfigError(f"{path} is not a run of `unifiedserve bench`: name a file that it has written") from None
    if version != VERSION:
        raise ConfigError(
            f"{path} has version {version} of the format, this program reads {VERSION}: use its own version"
        )
    try:
        return msgspec.json.decode(content, type=_Document).run
    except NO_JSON as error:
        raise ConfigError(f"{path} is damaged: {error}") from None
