"""Hold the first rank's KV cache, where each rank has one in its own memory."""

from collections.abc import Sequence

from unifiedserve.memory.kv_cache import KVCache
from unifiedserve.ranks.group import Group
from unifiedserve.ranks.leader import all_of_them
from unifiedserve.ranks.messages import CopyPages


class LeadingCache(KVCache):
    """Change pages of all ranks at once."""

    group: Group

    def copy_pages(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy all that is in some pages to others. Raises OutOfStepError if a rank cannot."""
        with all_of_them(self.group, CopyPages(list(sources), list(targets))):
            super().copy_pages(sources, targets)
