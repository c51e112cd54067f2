"""Hold the pages of the visual buffer with a request's visual tokens."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.pages import PageSlice


class _Page(NamedTuple):
    """Describe a page with rows [first, last) of the request."""

    first: int
    last: int
    number: int

    def common(self, rows: range) -> range:
        """Return those of the rows that are in the page."""
        return range(max(self.first, rows.start), min(self.last, rows.stop))


class VisualPages:
    """Own the visual rows of one request, as far as they have come. They are counted over all of its units."""

    def __init__(self, buffer: RowBuffer) -> None:
        self._buffer = buffer
        self._pages: list[_Page] = []

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of the pages."""
        return [page.number for page in self._pages]

    def add(self, pages: Sequence[int], rows: range) -> None:
        """Take over `pages`, which hold a unit's rows."""
        first = rows.start
        for number, count in self._buffer.spread(pages, len(rows)):
            self._pages.append(_Page(first, first + count, number))
            first += count
        self._pages.sort()

    def read(self, rows: range) -> Tensor:
        """Return a copy of the rows: [n, width]."""
        pages = [page for page in self._pages if page.common(rows)]
        offset = pages[0].first
        parts = [(page.number, page.last - page.first) for page in pages]
        return self._buffer.get(parts, rows.start - offset, rows.stop - offset)

    def slices(self, parts: Sequence[range]) -> list[PageSlice]:
        """Return where these rows are."""
        return [
            PageSlice(page.number, rows.start - page.first, rows.stop - page.first)
            for part in parts
            for page in self._pages
            if (rows := page.common(part))
        ]

    def find(self, parts: Sequence[range]) -> Tensor:
        """Return the numbers of these rows in the whole buffer: int64."""
        return self._buffer.numbers(self.slices(parts))

    def hand_over(self, parts: Sequence[range], holders: int) -> list[PageSlice]:
        """Return where these rows are, the only ones left; their pages belong to each of `holders` from now on."""
        handed, self._pages = self.slices(parts), []
        for _ in range(holders - 1):
            self._buffer.pool.retain([part.page for part in handed])
        return handed

    def take(self, rows: range) -> list[int]:
        """Return the pages of a unit's rows, which belong to the caller from now on."""
        taken = [page.number for page in self._pages if page.common(rows)]
        self._pages = [page for page in self._pages if not page.common(rows)]
        return taken

    def release(self, needed: Sequence[range] = ()) -> None:
        """Give back the pages without any row that is still needed."""
        pages, self._pages = self._pages, []
        released = []
        for page in pages:
            if any(page.common(rows) for rows in needed):
                self._pages.append(page)
            else:
                released.append(page.number)
        self._buffer.release(released)
