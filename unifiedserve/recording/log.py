"""Write the file of one run of an instance: records one behind the other, each behind its length."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import BinaryIO

_log = logging.getLogger(__name__)
_LENGTH = Struct("<I")
_BUFFER = 1 << 18  # bytes
_SECONDS = 1.0  # between two flushes


class Log:
    """Own a new file. A full disk ends the record, never the worker."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._flushed = float("-inf")
        self._file: BinaryIO | None = None
        with self._ending():
            self._file = path.open("xb", buffering=_BUFFER)

    def add(self, record: bytes) -> None:
        """Append a record."""
        if self._file:
            with self._ending():
                self._file.write(_LENGTH.pack(len(record)) + record)

    def flush_now_and_then(self, now: float) -> None:
        """Give the system what was added, about each second (monotonic seconds)."""
        if self._file and now - self._flushed > _SECONDS:
            self._flushed = now
            with self._ending():
                self._file.flush()

    def close(self) -> None:
        """End the record."""
        if self._file:
            with self._ending():
                self._file.close()
            self._file = None

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Let an error of the disk end the record."""
        try:
            yield
        except OSError as error:
            _log.warning("--record: nothing more goes to %s: %s", self._path, error.strerror)
            file, self._file = self._file, None
            if file:
                with suppress(OSError):
                    file.close()


def read_log(path: Path) -> tuple[list[bytes], bool]:
    """Return the whole records of a file. Another one may be cut off behind them."""
    records, data, at = [], path.read_bytes(), 0
    while at + _LENGTH.size <= len(data):
        start = at + _LENGTH.size
        end = start + _LENGTH.unpack_from(data, at)[0]
        if end > len(data):
            break
        records.append(data[start:end])
        at = end
    return records, at < len(data)
