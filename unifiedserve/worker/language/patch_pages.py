"""The pages of patches that vision has given an instance to encode."""

from collections.abc import Sequence

from torch import Tensor

from unifiedserve.memory.row_buffer import PageRows, RowBuffer
from unifiedserve.memory.status import Status


class PatchPages:
    """Reads them, and tells when they are done, by which vision chooses who is given the next ones."""

    def __init__(self, buffer: RowBuffer, status: Status, instance: str) -> None:
        self._buffer = buffer
        self._status = status
        self._instance = instance

    def read(self, units: Sequence[tuple[Sequence[int], int]]) -> Tensor:
        """Return a copy of the patches of units, each so many in its pages, one after the other: [n, width]."""
        pages: list[PageRows] = [part for numbers, rows in units for part in self._buffer.spread(numbers, rows)]
        return self._buffer.get(pages, 0, sum(rows for _, rows in pages))

    def hand_back(self, pages: Sequence[int]) -> None:
        """Note that these patches are encoded, whose pages go to further ones of the same request."""
        self._status.encoded(self._instance, len(pages))

    def release(self, pages: Sequence[int]) -> None:
        """Give back pages whose patches are encoded, or not wanted any more."""
        self._buffer.release(pages)
        self._status.encoded(self._instance, len(pages))
