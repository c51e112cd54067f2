"""Rows of one tensor shape in shared pages: the patch buffer and the visual buffer."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from ipc_buffers import PagedBuffer, PageIndex, PagePool
from unifiedserve.messages.pages import PageSlice

PageRows = tuple[int, int]  # a page and how many rows of it are used


class RowBuffer:
    """A typed view of a page pool: each row is a vector of `width` elements of `dtype`.

    Rows that belong together (an encode unit) get pages of their own, so that they can be written in any
    order and released as soon as they are consumed.
    """

    def __init__(self, pool: PagePool, width: int, dtype: torch.dtype) -> None:
        self.pool = pool
        self.width = width
        self.dtype = dtype
        self._rows = PagedBuffer(pool, width * dtype.itemsize)

    @cached_property
    def rows(self) -> Tensor:
        """All rows of all pages, [n, width], without a copy."""
        return from_dlpack(self.pool.memory).view(self.dtype).view(-1, self.width)

    def numbers(self, slices: Sequence[PageSlice]) -> Tensor:
        """Return the numbers in `rows` of the rows of all slices, one after another: int64 [n]."""
        pages, first, last = np.array(slices, np.int64).T
        lengths = last - first
        ends = lengths.cumsum()
        offsets = pages * self._rows.rows_per_page + first - (ends - lengths)
        return torch.from_numpy(np.repeat(offsets, lengths) + np.arange(ends[-1]))

    def pages_for(self, rows: int) -> int:
        return -(-rows // self._rows.rows_per_page)

    def put(self, rows: Tensor, uid: int, instance: int) -> list[int] | None:
        """Write `rows` [n, width] into new pages and return these; None if there are not enough."""
        pages = self.put_all(rows, [(uid, len(rows))], instance)
        return None if pages is None else pages[0]

    def put_all(self, rows: Tensor, parts: Sequence[tuple[int, int]], instance: int) -> list[list[int]] | None:
        """Write `rows` [n, width], which are (uid, count) one after the other, each part into new pages of its own.

        None, and nothing is written, if there are not enough pages for all.
        """
        taken: list[list[int]] = []
        for uid, count in parts:
            pages = self.pool.allocate(self.pages_for(count), uid, instance)
            if pages is None:
                self.pool.release([page for part in taken for page in part])
                return None
            taken.append([int(page) for page in pages])
        index = PageIndex.build([self.spread(pages, count) for pages, (_, count) in zip(taken, parts, strict=True)])
        self._rows.write(index, rows.contiguous().view(torch.uint8).numpy())
        return taken

    def get(self, pages: Sequence[PageRows], start: int, stop: int) -> Tensor:
        """Copy rows [start, stop) of those that lie in `pages`: [stop - start, width]."""
        out = torch.empty(stop - start, self.width, dtype=self.dtype)
        self._rows.read(PageIndex.build([list(pages)]), 0, start, stop, out.view(torch.uint8).numpy())
        return out

    def spread(self, pages: Sequence[int], rows: int) -> list[PageRows]:
        """Return each page with how many of `rows` rows lie in it: all are full but the last."""
        full = self._rows.rows_per_page
        return [(page, min(full, rows - i * full)) for i, page in enumerate(pages)]
