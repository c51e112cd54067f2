"""Keep the page tables of sequences in decode in shared memory: they outlive the worker that decodes."""

from collections.abc import Sequence
from typing import NamedTuple

from ipc_buffers import Arena

_UID, _INDEX, _OFFSET, _COUNT = range(4)
_COLUMNS = 4
_ITEM_BYTES = 8

Key = tuple[int, int]  # uid of a request, number of an answer


class Row(NamedTuple):
    """Hold what goes on where a sequence's tokens are known: its pages of the KV cache, and its positions' offset."""

    position_offset: int
    pages: list[int]


class SequenceTables:
    """Hold a table for each instance. Its instance's worker alone writes it; it is read when that has died."""

    def __init__(self, arena: Arena, instances: Sequence[str], rows: int, most_pages: int) -> None:
        """Give each table so many rows, of so many pages at most. Sequences that do not fit are left out."""
        self.arena = arena
        self._numbers = arena.buffer().cast("q")
        self._instances = list(instances)
        self._rows = rows
        self._columns = _COLUMNS + most_pages

    @staticmethod
    def create(name: str, instances: Sequence[str], rows: int, most_pages: int) -> Arena:
        """Create the arena; raises as `Arena.create`."""
        return Arena.create(name, SequenceTables.bytes(len(instances), rows, most_pages))

    @staticmethod
    def bytes(instances: int, rows: int, most_pages: int) -> int:
        """Return the bytes that the tables take."""
        return max(1, instances * rows * (_COLUMNS + most_pages)) * _ITEM_BYTES

    def of(self, instance: str) -> "SequenceTable":
        """Return the table of an instance."""
        first = self._instances.index(instance) * self._rows * self._columns
        return SequenceTable(
            self._numbers, range(first, first + self._rows * self._columns, self._columns), self._columns
        )


class SequenceTable:
    """Hold the sequences of one instance.

    A row counts once its uid is there, and a page once it is counted, an aligned number at a time. So a worker that is
    killed in between leaves a table in which each row is whole.
    """

    def __init__(self, numbers: memoryview, starts: Sequence[int], columns: int) -> None:
        """Write to these numbers, in rows that begin at `starts` and have so many columns."""
        self._numbers = numbers
        self._starts = starts
        self._columns = columns
        self._free = list(starts)
        self._at: dict[Key, int] = {}

    def enter(self, key: Key, position_offset: int, pages: Sequence[int]) -> None:
        """Note the pages of a sequence, if there is room for it."""
        if not self._free or _COLUMNS + len(pages) > self._columns:
            return
        self._at[key] = start = self._free.pop()
        self._numbers[start + _COUNT] = 0
        self._append(start, pages)
        self._numbers[start + _INDEX], self._numbers[start + _OFFSET] = key[1], position_offset
        self._numbers[start + _UID] = key[0]

    def extend(self, key: Key, pages: Sequence[int]) -> None:
        """Note further pages of a sequence; one that has too many now is forgotten."""
        start = self._at.get(key)
        if start is None:
            return
        if _COLUMNS + self._numbers[start + _COUNT] + len(pages) > self._columns:
            self.leave(key)
        else:
            self._append(start, pages)

    def leave(self, key: Key) -> None:
        """Forget a sequence, if it is here, before its pages are given back."""
        start = self._at.pop(key, None)
        if start is not None:
            self._numbers[start + _UID] = 0
            self._free.append(start)

    def take(self) -> dict[Key, Row]:
        """Return all sequences of a worker that has died, and forget them."""
        rows = {}
        for start in self._starts:
            uid, index, offset, count = self._numbers[start : start + _COLUMNS].tolist()
            if uid:
                pages = self._numbers[start + _COLUMNS : start + _COLUMNS + count].tolist()
                rows[uid, index] = Row(offset, pages)
                self._numbers[start + _UID] = 0
        return rows

    def _append(self, start: int, pages: Sequence[int]) -> None:
        count = self._numbers[start + _COUNT]
        for place, page in enumerate(pages, start + _COLUMNS + count):
            self._numbers[place] = page
        self._numbers[start + _COUNT] = count + len(pages)
