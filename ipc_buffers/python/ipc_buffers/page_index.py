"""Index rows of batches over pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class PageIndex:
    """Index where the rows of a batch of B requests lie on P pages (UnifiedServe §4.2).

    All arrays are int32 and C-contiguous; all ranges are half-open. The rows of a page start at its beginning,
    and a page may be partly filled.
    """

    pv_indptr: NDArray[np.int32]
    """[B+1] rows of each request in the flattened batch."""
    pv_page_indptr: NDArray[np.int32]
    """[B+1] entries of each request in `pv_page_indices`."""
    pv_page_indices: NDArray[np.int32]
    """[P] page numbers."""
    pv_cu_page_len: NDArray[np.int32]
    """[P+1] rows before each page in the flattened batch."""

    @staticmethod
    def build(per_request: Sequence[Sequence[tuple[int, int]]]) -> PageIndex:
        """Index of requests given as their (page number, rows on it), in row order.

        Raises ValueError if a page holds no row or a number does not fit into int32.
        """
        entries = np.array([entry for pages in per_request for entry in pages], dtype=np.int64).reshape(-1, 2)
        pages, rows = entries[:, 0], entries[:, 1]
        if (rows < 1).any():
            raise ValueError(f"page {pages[rows < 1][0]} holds no row: leave it out of the index")
        cu_page_len = _cumulative(rows)
        page_indptr = _cumulative(np.array([len(pages) for pages in per_request], dtype=np.int64))
        if max(int(cu_page_len[-1]), int(np.abs(pages).max(initial=0))) > np.iinfo(np.int32).max:
            raise ValueError("page numbers and the rows of a batch must fit into 32 bits")
        return PageIndex(
            pv_indptr=cu_page_len[page_indptr].astype(np.int32),
            pv_page_indptr=page_indptr.astype(np.int32),
            pv_page_indices=pages.astype(np.int32),
            pv_cu_page_len=cu_page_len.astype(np.int32),
        )


def _cumulative(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
