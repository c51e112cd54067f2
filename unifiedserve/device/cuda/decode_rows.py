"""The rows of running sequences on a GPU: what a step of decode needs of each, kept from step to step."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unifiedserve.device.base import DecodeRow, Device

#: length of a row without a sequence
EMPTY = -1
_UNKNOWN = -2  # what the device has of a row is of no use


class _Known(NamedTuple):
    """What the device has of a row: its sequence's length and offset, and how many of its pages."""

    length: int
    offset: int
    pages: int


class DecodeRows:
    """Newest tokens, lengths, offsets and page tables of `rows` sequences, in one buffer of the device.

    tokens   int32 [rows]         the newest one, which is not in the cache yet
    lengths  int32 [rows]         tokens in the cache before the next step; EMPTY: no sequence
    offsets  int32 [rows]         from a token's place to its position
    table    int32 [rows, pages]  page numbers

    The host keeps what it has told, and tells what has changed: in most steps nothing, or a few new pages.
    """

    def __init__(self, rows: int, pages: int, device: Device) -> None:
        self._device, self._rows, self._pages = device, rows, pages
        self._buffer = torch.zeros(rows * (3 + pages), dtype=torch.int32, device=device.torch)
        self.tokens, self.lengths, self.offsets = self._buffer[: 3 * rows].view(3, rows).unbind()
        self.table = self._buffer[3 * rows :].view(rows, pages)
        self.lengths.fill_(EMPTY)
        self._known = [_Known(EMPTY, 0, 0)] * rows

    def forget(self, row: int) -> None:
        """Tell all of this row anew when it is next used."""
        self._known[row] = _Known(_UNKNOWN, 0, 0)

    def tell(self, wanted: Sequence[DecodeRow]) -> None:
        """Bring the buffer to where these sequences, and no others, take a step.

        Raises ValueError for a sequence whose pages do not hold its next token, or are more than a row's.
        """
        places, values = self._changes(wanted)
        if places:
            changes = self._device.upload(torch.from_numpy(np.array((places, values), np.int64)))
            self._buffer.index_copy_(0, changes[0], changes[1].int())

    def advance(self, rows: Sequence[DecodeRow]) -> None:
        """Note that a step has been issued that ends with `advanced`."""
        for row in rows:
            known = self._known[row.number]
            self._known[row.number] = known._replace(length=known.length + 1)

    def advanced(self, rows: int) -> None:
        """Let the lengths of the first `rows` rows grow by their new tokens, on the device."""
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
        idle = {number for number, known in enumerate(self._known) if known.length != EMPTY}
        for row in wanted:
            self._change(row, places, values)
            idle.discard(row.number)
        for number in idle:
            places.append(self._rows + number)
            values.append(EMPTY)
            self._known[number] = self._known[number]._replace(length=EMPTY)
        return places, values

    def _change(self, row: DecodeRow, places: list[int], values: list[int]) -> None:
        known, pages = self._known[row.number], len(row.pages)
        if pages > self._pages:
            raise ValueError(f"a sequence of {pages} pages in a row for {self._pages}")
        if row.token is not None:
            places.append(row.number)
            values.append(row.token)
        if row.length != known.length:
            places.append(self._rows + row.number)
            values.append(row.length)
        if row.offset != known.offset or known.length == _UNKNOWN:
            places.append(2 * self._rows + row.number)
            values.append(row.offset)
        if pages != known.pages:
            first = 3 * self._rows + row.number * self._pages
            places.extend(range(first + known.pages, first + pages))
            values.extend(row.pages[known.pages :])
        self._known[row.number] = _Known(row.length, row.offset, pages)
