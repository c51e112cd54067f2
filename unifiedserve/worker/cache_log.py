"""Log what a stage did for and with the caches, until the engine is told."""

from collections.abc import Sequence

from ipc_buffers import PagePool
from unifiedserve.messages.pages import Pages
from unifiedserve.messages.wire import CachedBuffer, Kept, Lookup


class CacheLog:
    """Log what one stage kept and looked up in one buffer."""

    def __init__(self, buffer: CachedBuffer, pool: PagePool) -> None:
        self._buffer: CachedBuffer = buffer
        self._pool = pool
        self._kept: list[Kept] = []
        self._lookups: list[Lookup] = []

    def keep(self, key: bytes, pages: Sequence[int]) -> None:
        """Note that these pages of the stage are full and hold what `key` stands for."""
        epochs = self._pool.remember(pages).tolist()
        self._kept.append(Kept(self._buffer, key, Pages(tuple(pages), tuple(epochs))))

    def looked_up(self, uid: int, tokens: int, hits: int) -> None:
        """Note that `tokens` of a request might have been there, and `hits` of them were."""
        self._lookups.append(Lookup(uid, self._buffer, tokens, hits))

    def take(self) -> tuple[list[Kept], list[Lookup]]:
        """Return what came together since the last time."""
        taken = self._kept, self._lookups
        self._kept, self._lookups = [], []
        return taken
