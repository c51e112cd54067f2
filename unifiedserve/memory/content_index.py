"""Find what has been computed before: the pages that hold it, until somebody takes them again."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from unifiedserve.messages.pages import Pages


class Pool(Protocol):
    """Define the part of `ipc_buffers.PagePool` that the index needs."""

    def renew(self, pages: Sequence[int], epochs: Sequence[int], /) -> tuple[int, int]: ...


class ContentIndex:
    """Map keys of contents to the pages of `pool` that hold them.

    It holds no references: pages that nobody uses are free for anybody to take, and the pool's epochs tell whether
    that has happened. A page is in at most one entry, so there are never more entries than pages.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._entries: dict[bytes, Pages] = {}
        self._keys: dict[int, bytes] = {}  # page -> key of the entry it is in

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: bytes, pages: Pages) -> None:
        """Record that `pages` hold the content of `key`.

        Earlier knowledge of these pages and of the key is forgotten.
        """
        self._remove(key)
        for page in pages.numbers:
            self._remove(self._keys.get(page))
        self._entries[key] = pages
        self._keys.update(dict.fromkeys(pages.numbers, key))

    def prefix(self, keys: Iterable[bytes]) -> Pages:
        """Return the pages of the leading keys that are still there, one each. They count as used now."""
        found = []
        for key in keys:
            if (pages := self._entries.get(key)) is None:
                break
            found.append((*pages.numbers, *pages.epochs))
        numbers = tuple(page for page, _ in found)
        epochs = tuple(epoch for _, epoch in found)
        valid, _ = self._pool.renew(numbers, epochs)
        if valid < len(numbers):
            self._remove(self._keys[numbers[valid]])
        return Pages(numbers, epochs).first(valid)

    def get(self, key: bytes) -> Pages | None:
        """Return the pages that hold the content, if all are still there. They count as used now; else None."""
        pages = self._entries.get(key)
        if pages is not None and self._pool.renew(*pages)[0] < len(pages.numbers):
            self._remove(key)
            return None
        return pages

    def _remove(self, key: bytes | None) -> None:
        pages = self._entries.pop(key, None) if key is not None else None
        for page in pages.numbers if pages else ():
            del self._keys[page]
