"""Hold the first rank's KV cache, where each rank has one in its own memory."""

from collections.abc import Sequence

from torch import Tensor

from ipc_buffers import PagePool
from unifiedserve.device import Device
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.ranks.group import Group
from unifiedserve.ranks.leader import all_of_them
from unifiedserve.ranks.messages import CopyPages


class LeadingCache(KVCache):
    """Change pages of all ranks at once."""

    def __init__(self, group: Group, pool: PagePool, layout: KVLayout, visual: Tensor, device: Device) -> None:
        """Take what joins the ranks; the rest is as of a `KVCache`."""
        super().__init__(pool, layout, visual, device)
        self._group = group

    def copy_pages(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy all that is in some pages to others. Raises OutOfStepError if a rank cannot."""
        with all_of_them(self._group, CopyPages(list(sources), list(targets))):
            super().copy_pages(sources, targets)
