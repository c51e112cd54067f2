"""Read the pages of patches that vision has given an instance to encode."""

from collections.abc import Sequence

from torch import Tensor

from unifiedserve.memory.row_buffer import PageRows, RowBuffer
from unifiedserve.memory.status import Status


class PatchPages:
    """Read them, and tell when they are done. Vision chooses the receiver of the next ones by that."""

    def __init__(self, buffer: RowBuffer, status: Status, instance: str) -> None:
        self._buffer = buffer
        self._status = status
        self._instance = instance

    def read(self, units: Sequence[tuple[Sequence[int], int]]) -> Tensor:
        """Return a copy of the patches of units, one after the other: [n, width]. Each has so many in its pages."""
        pages: list[PageRows] = [part for numbers, rows in units for part in self._buffer.spread(numbers, rows)]
        return self._buffer.get(pages, 0, sum(rows for _, rows in pages))

    def hand_back(self, pages: Sequence[int]) -> None:
        """Note that these patches are encoded. Their pages go to further ones of the same request."""
        self._status.encoded(self._instance, len(pages))

    def release(self, pages: Sequence[int]) -> None:
        """Give back pages whose patches are encoded, or not wanted any more."""
        self._buffer.release(pages)
        self._status.encoded(self._instance, len(pages))
