"""Read full KV pages of prompts that another memory prefills, before their answers come."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from unifiedserve.carriers.base import Copy
from unifiedserve.memory.kv_cache import KVCache
from unifiedserve.messages.pages import Pages
from unifiedserve.messages.wire import FilledPages
from unifiedserve.placement import Stage
from unifiedserve.worker.language.reads import Reads

Page = tuple[int, int]  # the number of a page there, and the epoch in which it is full


@dataclass(slots=True)
class EarlyPages:
    """Track what is offered of a prompt, where it is read to, and its arrival."""

    address: str
    offered: list[Page] = field(default_factory=list)
    taken: dict[Page, int] = field(default_factory=dict)  # numbers of pages here
    read: set[Page] = field(default_factory=set)
    transfers: set[int] = field(default_factory=set)


class ForeignPrompts:
    """Read pages early. Nobody waits for them, so that they can be given back at any time."""

    def __init__(self, kv: KVCache, instance: int, reads: Reads, lost: Callable[[int], None]) -> None:
        """Tell of requests (uid) whose pages were `lost`: nothing is held of them any more."""
        self._kv = kv
        self._instance = instance
        self._reads = reads
        self._lost = lost
        self._early: dict[int, EarlyPages] = {}  # by uid

    def offer(self, message: FilledPages) -> None:
        """Take in what can be read."""
        early = self._early.setdefault(message.ticket.uid, EarlyPages(message.offer.address))
        early.offered += zip(*message.offer.kv, strict=True)

    def begin(self, uid: int, count: int) -> bool:
        """Begin to read the first so many pages that are offered; return whether there are pages for them."""
        early = self._early[uid]
        taken = self._kv.pool.allocate(count, uid, self._instance)
        if taken is None:
            return False
        pages, early.offered = early.offered[:count], early.offered[count:]
        into = taken.tolist()
        early.taken |= zip(pages, into, strict=True)
        numbers, epochs = zip(*pages, strict=True)
        ended = partial(self._ended, uid, early, pages)
        transfer = self._reads.begin(
            uid, Stage.DECODE, early.address, [Copy("kv", numbers, epochs, into)], lambda error: ended(transfer, error)
        )
        early.transfers.add(transfer)
        return True

    def forgo(self, uid: int) -> bool:
        """Give back what has pages here of a prompt; return whether it is here at all."""
        early = self._early.get(uid)
        if early is None:
            return False
        self._close(early)
        self._kv.release(list(early.taken.values()))
        early.offered = [*early.taken, *early.offered]
        early.taken, early.read = {}, set()
        return True

    def take(self, uid: int, pages: Pages) -> tuple[dict[int, int], set[int]]:
        """Hand over what was read of these pages: numbers here by those there.

        It tells which of them have been read, too. Reads under way are not waited for: their pages are read again. All
        else is given back.
        """
        early = self._early.pop(uid, None)
        if early is None:
            return {}, set()
        self._close(early)
        wanted = set(zip(*pages, strict=True))
        self._kv.release([here for page, here in early.taken.items() if page not in wanted])
        taken = {page[0]: here for page, here in early.taken.items() if page in wanted}
        return taken, {number for number, _ in early.read & wanted}

    def drop(self, uid: int) -> bool:
        """Forget a prompt and give back its pages; return whether it was here."""
        known = self.forgo(uid)
        self._early.pop(uid, None)
        return known

    def _close(self, early: EarlyPages) -> None:
        for transfer in early.transfers:
            self._reads.close(transfer)
        early.transfers = set()

    def _ended(self, uid: int, early: EarlyPages, pages: list[Page], transfer: int, error: str) -> None:
        early.transfers.discard(transfer)
        if error:
            self.drop(uid)
            self._lost(uid)
        else:
            early.read |= set(pages)
