"""Keep the rows of running sequences on a GPU: what a step of decode needs of each, kept from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from unifiedserve.device.base import DecodeRow, Device

if TYPE_CHECKING:
    from torch import Tensor

#: length of a row without a sequence
EMPTY = -1
_UNKNOWN = -2  # what the device has of a row is of no use


def numbers_of_rows(rows: int, pages: int) -> int:
    """Return how many int32 a device keeps for so many sequences. Each has up to so many pages."""
    return rows * (3 + pages)


class DecodeRows:
    """Hold newest tokens, lengths, offsets and page tables of `rows` sequences. They lie in one buffer of the device.

    tokens   int32 [rows]         the newest one, which is not in the cache yet
    lengths  int32 [rows]         tokens in the cache before the next step; EMPTY: no sequence
    offsets  int32 [rows]         from a token's place to its position
    table    int32 [rows, pages]  page numbers

    The host keeps what it has told, and tells what has changed: in most steps nothing, or a few new pages.
    """

    def __init__(self, rows: int, pages: int, device: Device) -> None:
        self._device, self._rows, self._pages = device, rows, pages
        self._buffer = torch.zeros(numbers_of_rows(rows, pages), dtype=torch.int32, device=device.torch)
        self.tokens, self.lengths, self.offsets = self._buffer[: 3 * rows].view(3, rows).unbind()
        self.table = self._buffer[3 * rows :].view(rows, pages)
        self.lengths.fill_(EMPTY)
        # what the device has of each row once all steps are done that have been issued
        self._lengths, self._held = [EMPTY] * rows, [0] * rows

    def forget(self, row: int) -> None:
        """Tell all of this row again when it is next used."""
        self._lengths[row], self._held[row] = _UNKNOWN, 0

    def tell(self, wanted: Sequence[DecodeRow]) -> None:
        """Bring the buffer to where these sequences, and no others, take a step. It ends with `advance`.

        Raises ValueError for a sequence whose pages do not hold its next token, or are more than a row's.
        """
        places, values = self._changes(wanted)
        if places:
            changes = self._device.upload(torch.from_numpy(np.array((places, values), np.int64)))
            self._buffer.index_copy_(0, changes[0], changes[1].int())

    def advance(self, rows: int) -> None:
        """Let the first `rows` rows' lengths grow by their new tokens, on the device."""
        lengths = self.lengths[:rows]
        lengths += (lengths >= 0).int()

    def slots(self, rows: int, page_size: int) -> Tensor:
        """Return where the new tokens of the first `rows` rows go: int64 [rows], below 0 for those without any."""
        lengths = self.lengths[:rows]
        places = lengths.clamp(min=0)
        pages = self.table[:rows].gather(1, (places // page_size).long()[:, None])[:, 0]
        return torch.where(lengths >= 0, pages.long() * page_size + places % page_size, -1)

    def _changes(self, wanted: Sequence[DecodeRow]) -> tuple[list[int], list[int]]:
        """Return places in the buffer and what is to be there."""
        places: list[int] = []
        values: list[int] = []
        idle = set(range(self._rows))
        for row in wanted:
            idle.discard(row.number)
            if row.token is not None:
                places.append(row.number)
                values.append(row.token)
            if row.length != self._lengths[row.number]:
                self._place(row, places, values)
            if len(row.pages) != self._held[row.number]:
                self._extend(row, places, values)
            self._lengths[row.number] = row.length + 1
        for number in idle:
            if self._lengths[number] != EMPTY:
                places.append(self._rows + number)
                values.append(EMPTY)
                self._lengths[number] = EMPTY
        return places, values

    def _place(self, row: DecodeRow, places: list[int], values: list[int]) -> None:
        """Add a sequence's length if it begins in its row, or the device's is wrong."""
        places += [self._rows + row.number, 2 * self._rows + row.number]
        values += [row.length, row.offset]

    def _extend(self, row: DecodeRow, places: list[int], values: list[int]) -> None:
        """Add the pages that are new."""
        held, pages = self._held[row.number], len(row.pages)
        if pages > self._pages:
            raise ValueError(f"a sequence of {pages} pages in a row for {self._pages}")
        first = 3 * self._rows + row.number * self._pages
        places.extend(range(first + held, first + pages))
        values.extend(row.pages[held:])
        self._held[row.number] = pages
