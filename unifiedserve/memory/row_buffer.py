"""Rows of one tensor shape in shared pages: the patch buffer and the visual buffer."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ipc_buffers import PagedBuffer, PageIndex, PagePool

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

    def pages_for(self, rows: int) -> int:
        return -(-rows // self._rows.rows_per_page)

    def put(self, rows: Tensor, uid: int, instance: int) -> list[int] | None:
        """Write `rows` [n, width] into new pages; None if there are not enough."""
        pages = self.pool.allocate(self.pages_for(len(rows)), uid, instance)
        if pages is None:
            return None
        index = PageIndex.build([self.spread(pages.tolist(), len(rows))])
        self._rows.write(index, rows.contiguous().view(torch.uint8).numpy())
        return [int(page) for page in pages]

    def get(self, pages: Sequence[PageRows], start: int, stop: int) -> Tensor:
        """Rows [start, stop) of those that lie in `pages`, copied: [stop - start, width]."""
        out = torch.empty(stop - start, self.width, dtype=self.dtype)
        self._rows.read(PageIndex.build([list(pages)]), 0, start, stop, out.view(torch.uint8).numpy())
        return out

    def spread(self, pages: Sequence[int], rows: int) -> list[PageRows]:
        """How `rows` rows lie in `pages`: all full but the last."""
        full = self._rows.rows_per_page
        return [(page, min(full, rows - i * full)) for i, page in enumerate(pages)]
