"""Read annotation files, row by row, checked against the type of a row.

All functions raise ConfigError, in one line with the file, the row and the reason.
"""

import codecs
import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from unifiedserve.errors import ConfigError

T = TypeVar("T")
Row = TypeVar("Row", bound=msgspec.Struct)
Seconds = Annotated[float, msgspec.Meta(ge=0)]


def json_rows(path: Path, row: type[Row], key: str | None = None) -> Iterator[tuple[str, Row]]:
    """Yield where each row is and the row, of a JSON list. It lies under `key` if given."""
    rows = read_json(path, dict[str, Any]).get(key) if key else read_json(path, list[Any])
    if not isinstance(rows, list):
        raise ConfigError(f"{path}: has no list of rows under {key!r}")
    return _typed(path, enumerate(rows, 1), row)


def line_rows(path: Path, row: type[Row]) -> Iterator[tuple[str, Row]]:
    """Yield where each row is and the row, of a file of JSON lines."""
    return _typed(path, _lines(path), row)


def comma_rows(path: Path, row: type[Row]) -> Iterator[tuple[str, Row]]:
    """Yield where each row is and the row, of a CSV file with a header; numbers are read from their text."""
    return _typed(path, _commas(path), row, strict=False)


def parquet_rows(path: Path, row: type[Row]) -> Iterator[tuple[str, Row]]:
    """Yield where each row is and the row, of a Parquet file. Some rows are in memory at a time."""
    return _typed(path, enumerate(_parquet(path), 1), row)


def read_json(path: Path, kind: type[T]) -> T:
    """Return what a JSON file holds."""
    try:
        return msgspec.json.decode(_read(path), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: {_reason(error)}") from error


def read_text(path: Path) -> str:
    """Return the text of a file, in UTF-8 with or without a byte-order mark."""
    try:
        return _read(path).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is no UTF-8 text: {error.reason} at byte {error.start}") from error


def _typed(
    path: Path, rows: Iterable[tuple[int, Any]], row: type[Row], *, strict: bool = True
) -> Iterator[tuple[str, Row]]:
    for number, content in rows:
        try:
            yield f"{path.name}, row {number}", msgspec.convert(content, row, strict=strict)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{path}, row {number}: {_reason(error)}") from error


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(_read(path).split(b"\n"), 1):
        if line.strip():
            try:
                yield number, msgspec.json.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise ConfigError(f"{path}, row {number}: {_reason(error)}") from error


def _commas(path: Path) -> Iterator[tuple[int, Any]]:
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), restkey="(too many)", strict=True)
    try:
        yield from enumerate(reader, 1)
    except csv.Error as error:
        raise ConfigError(f"{path}, after line {reader.line_num}: {error}") from error


def _parquet(path: Path) -> Iterator[Any]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ConfigError(f"{path}: reading Parquet needs pyarrow: pip install pyarrow") from error
    try:
        for batch in ParquetFile(path).iter_batches(batch_size=64):
            yield from batch.to_pylist()
    except (OSError, ValueError, ArrowException) as error:
        raise ConfigError(f"{path}: {_reason(error)}") from error


def _read(path: Path) -> bytes:
    """Return what a file holds, without a byte-order mark."""
    try:
        return path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())
