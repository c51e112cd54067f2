"""Keep rows of one tensor shape in shared pages: the patch buffer and the visual buffer."""

from collections.abc import Sequence
from functools import cached_property
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from ipc_buffers import PagePool
from unifiedserve.device import CPU, Device
from unifiedserve.memory.device_pages import DevicePages
from unifiedserve.messages.pages import PageSlice

PageRows = tuple[int, int]  # a page and how many rows of it are used


class RowBuffer(DevicePages):
    """View a page pool with types: each row is a vector of `width` elements of `dtype`.

    Rows that belong together (an encode unit) get pages of their own, so that they can be written in any
    order and released as soon as they are consumed. Raises ValueError if pages do not hold whole rows.
    """

    def __init__(self, pool: PagePool, width: int, dtype: torch.dtype, device: Device = CPU) -> None:
        if width < 1 or pool.page_bytes % (width * dtype.itemsize):
            raise ValueError(f"{pool.name}: pages of {pool.page_bytes} bytes, a row takes {width * dtype.itemsize}")
        super().__init__(pool, device)
        self.width = width
        self.dtype = dtype
        self._rows_per_page = pool.page_bytes // (width * dtype.itemsize)

    @cached_property
    def rows(self) -> Tensor:
        """Return all rows of all pages, [n, width], without a copy."""
        return self.data().view(self.dtype).view(-1, self.width)

    def numbers(self, slices: Sequence[PageSlice]) -> Tensor:
        """Return the numbers in `rows` of the rows of all slices, one after another: int64 [n] in host memory."""
        pages, first, last = np.array(slices, np.int64).T
        lengths = last - first
        ends = lengths.cumsum()
        offsets = pages * self._rows_per_page + first - (ends - lengths)
        return torch.from_numpy(np.repeat(offsets, lengths) + np.arange(ends[-1]))

    def pages_for(self, rows: int) -> int:
        return -(-rows // self._rows_per_page)

    def take(self, parts: Sequence[int], uid: int, instance: int) -> list[list[int]] | None:
        """Take pages for parts of so many rows, and return those of each.

        None, and nothing taken, if there are not enough.
        """
        counts = [self.pages_for(rows) for rows in parts]
        pages = self.pool.allocate(sum(counts), uid, instance)
        if pages is None:
            return None
        numbers = iter(pages.tolist())
        return [list(islice(numbers, count)) for count in counts]

    def write(self, rows: Tensor, parts: Sequence[tuple[Sequence[int], int]]) -> None:
        """Write `rows` [n, width] on the device into (pages, count) of each part.

        The parts come one after the other.
        """
        used = [page for pages, count in parts for page in self.spread(pages, count)]
        self._words(self.rows).index_copy_(0, self._places(used), self._words(rows))

    def get(self, pages: Sequence[PageRows], start: int, stop: int) -> Tensor:
        """Copy rows [start, stop) of those that lie in `pages`: [stop - start, width], on the device."""
        return self.rows.index_select(0, self._places(pages, start, stop))

    def spread(self, pages: Sequence[int], rows: int) -> list[PageRows]:
        """Return each page with how many of `rows` rows lie in it: all are full but the last."""
        full = self._rows_per_page
        return [(page, min(full, rows - i * full)) for i, page in enumerate(pages)]

    def _places(self, pages: Sequence[PageRows], start: int = 0, stop: int | None = None) -> Tensor:
        numbers = self.numbers([PageSlice(page, 0, used) for page, used in pages])
        return self.device.upload(numbers[start:stop])

    def _words(self, rows: Tensor) -> Tensor:
        """View rows as wide elements, which are copied much faster than bytes."""
        fits = self.width * self.dtype.itemsize % torch.int64.itemsize == 0
        return rows.contiguous().view(torch.int64) if fits else rows
