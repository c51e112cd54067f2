"""Read lines of text files, gzipped or not, and the numbers in them. An error names the file and the line."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

from unifiedserve.bench.arrivals.spec import finite
from unifiedserve.errors import ConfigError

_GZIP = b"\x1f\x8b"


def lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file. Raises ConfigError if it cannot be read, is no text, or its gzip stream is damaged."""
    number = 0
    try:
        with path.open("rb") as file:
            zipped = file.peek(2)[:2] == _GZIP
            text = io.TextIOWrapper(gzip.GzipFile(fileobj=file) if zipped else file, "utf-8-sig", newline="")
            for line in text:
                number += 1
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise ConfigError(
            f"{path}: the gzip file is damaged or cut short after line {number}: fetch it again"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}, line {number + 1}: this is no text: is it the file that was meant?") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None


class Cells:
    """Hold a row of a table by the names of its columns. `where` names the file and the line."""

    def __init__(self, path: Path, line: int, columns: list[str], cells: list[str]) -> None:
        self.line = line
        self.where = f"{path}, line {line}"
        if len(cells) != len(columns):
            raise ConfigError(f"{self.where}: {len(cells)} columns instead of {len(columns)} ({','.join(columns)})")
        self.columns = columns
        self._cells = dict(zip(columns, cells, strict=True))

    def __getitem__(self, column: str) -> str:
        return self._cells[column].strip()

    def number(self, column: str) -> float:
        """Return a finite number of zero or more; raises ConfigError if the cell has none."""
        return finite(f"{self.where}: {column}", self[column])

    def whole(self, column: str) -> int:
        """Return likewise a whole number; one written as 12.0 is one."""
        number = self.number(column)
        if number != int(number):
            raise ConfigError(f"{self.where}: {column} must be a whole number, not {self[column]}")
        return int(number)


def table(path: Path) -> Iterator[Cells]:
    """Yield the rows of comma-separated values below the line that names the columns; blank lines are skipped."""
    columns: list[str] | None = None
    for number, cells in _split(path):
        if not cells:
            continue
        if columns is None:
            columns = [cell.strip() for cell in cells]
        else:
            yield Cells(path, number, columns, cells)


def _split(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line and its cells; those in quotation marks may go over several lines."""
    reader = csv.reader(lines(path))
    start = 1
    try:
        for cells in reader:
            yield reader.line_num, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(f"{path}, line {start}: {error}: is a quotation mark not closed?") from None
