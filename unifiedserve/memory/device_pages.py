"""Show a pool's pages to a device, and give them back by a rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ipc_buffers import PagePool
from unifiedserve.device import Device
from unifiedserve.messages.pages import Pages

if TYPE_CHECKING:
    from torch import Tensor

PageNumbers = Sequence[int] | npt.NDArray[np.integer]


class DevicePages:
    """Share what the KV cache and buffers of rows have in common.

    It is a pool, and the device that reads and writes its pages.
    """

    def __init__(self, pool: PagePool, device: Device) -> None:
        self.pool = pool
        self.device = device

    def recall(self, pages: Pages, uid: int, instance: int) -> bool:
        """Take pages that once held something; return whether all of them still do, else none is taken."""
        recalled = self.pool.recall(*pages, uid, instance)
        if recalled < len(pages.numbers):
            self.release(pages.numbers[:recalled])
        return recalled == len(pages.numbers)

    def recall_all(self, parts: Iterable[Pages], uid: int, instance: int) -> list[int] | None:
        """Take pages of several parts that once held something; None, and none taken, if some do not any more."""
        recalled: list[int] = []
        for pages in parts:
            if not self.recall(pages, uid, instance):
                self.release(recalled)
                return None
            recalled += pages.numbers
        return recalled

    def release(self, pages: PageNumbers) -> None:
        """Give back pages. Another process may take them next: nothing may still be at work on them."""
        if len(pages):
            self.device.fence()
            self.pool.release(pages)

    def data(self) -> Tensor:
        """Return all bytes of all pages, uint8 [num_pages, page_bytes], without a copy."""
        return self.device.view(self.pool.memory).view(self.pool.num_pages, self.pool.page_bytes)
