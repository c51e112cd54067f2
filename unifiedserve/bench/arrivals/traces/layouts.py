"""Detect the layout of a trace file by how it begins."""

import csv
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from unifiedserve.bench.arrivals.traces import azure, burstgpt, mooncake, servegen
from unifiedserve.bench.arrivals.traces.lines import lines
from unifiedserve.bench.arrivals.traces.row import Row
from unifiedserve.errors import ConfigError

_TABLES: dict[str, tuple[tuple[str, ...], Callable[[Path], Iterator[Row]]]] = {
    "Azure LMM 2025": (azure.LMM, azure.read_lmm),  # before the one whose columns are some of its own
    "Azure LLM 2023": (azure.LLM, azure.read_llm),
    "seconds and tokens": (azure.SECONDS, azure.read_seconds),
    "BurstGPT": (burstgpt.COLUMNS, burstgpt.read),
}
_OTHERS = {
    b"version https://git-lfs": "a pointer of Git LFS, not the file itself: fetch it with git lfs pull",
    b"<": "a web page",
    b"PK": "a zip archive: unpack it",
    b"PAR1": "a Parquet file: write it as CSV",
    b"[": "one JSON array: write an object a line",
    b"quantity,requests,percentile": "percentiles of a trace, not a trace: use them for lengths",
}


def read(path: Path, seed: int) -> Iterator[Row]:
    """Yield the rows of a trace of any known layout as they stand there; `seed` is for those that are drawn.

    Raises ConfigError if the file cannot be read, is empty, or is of another kind: then it says of which.
    """
    try:
        with path.open("rb") as file:
            start = file.read(32)
        if start and _is_archive(path):
            return servegen.read(path, seed)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    for beginning, what in _OTHERS.items():
        if start.startswith(beginning):
            raise ConfigError(f"{path}: not a trace: it looks like {what}")
    first = next((line for line in lines(path) if line.strip()), "")
    if not first:
        raise ConfigError(f"{path}: the file is empty")
    return mooncake.read(path) if first.startswith("{") else _read_table(path, first)


def _is_archive(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except (EOFError, zlib.error):  # a gzip file that is damaged: reading its lines says so
        return False


def _read_table(path: Path, header: str) -> Iterator[Row]:
    columns = [cell.strip() for cell in _cells(header)]
    for wanted, reader in _TABLES.values():
        if set(wanted) <= set(columns):
            return reader(path)
    name, (wanted, _) = max(_TABLES.items(), key=lambda table: len(set(table[1][0]) & set(columns)))
    missing = [column for column in wanted if column not in columns]
    if len(missing) < len(wanted):
        raise ConfigError(f"{path}, line 1: it looks like {name}, but has no column {', '.join(missing)}")
    raise ConfigError(f"{path}, line 1: not a trace of a known layout ({', '.join(_TABLES)}, Mooncake, ServeGen)")


def _cells(header: str) -> list[str]:
    """Return the cells of a line; none if it is too long to be one of names."""
    try:
        return next(csv.reader([header]))
    except csv.Error:
        return []
