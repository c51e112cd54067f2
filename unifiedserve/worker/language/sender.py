"""What an instance has computed, on its way to who goes on with it: in the same memory, or in another one."""

from collections.abc import Container, Sequence
from itertools import groupby

from unifiedserve.memory.device_pages import DevicePages
from unifiedserve.memory.kv_cache import KVCache
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.pages import PageOffer, Pages
from unifiedserve.messages.wire import Answers, Embeddings, Generation, Released
from unifiedserve.worker.language.sequence import Sequence as Answer
from unifiedserve.worker.outbox import Outbox


class Sender:
    """Sends page numbers within a memory. To another one it sends an offer, and holds the pages until they are read."""

    def __init__(
        self, name: str, kv: KVCache, visual: RowBuffer, outbox: Outbox, elsewhere: Container[str], address: str
    ) -> None:
        """Send from the instance of this `name`; those `elsewhere` read its pages at this address of its carrier."""
        self._name = name
        self._kv = kv
        self._visual = visual
        self._outbox = outbox
        self._elsewhere = elsewhere
        self._address = address
        self._lent: dict[tuple[int, int | None], tuple[list[int], list[int]]] = {}  # pages of both pools

    def send_unit(self, unit: Embeddings, host: str) -> None:
        """Send an encoded unit on to prefill."""
        if host in self._elsewhere:
            self._lent[unit.uid, unit.unit] = [], unit.pages
            offer = PageOffer(self._name, self._address, visual=_pages(self._visual, unit.pages))
            unit = Embeddings(uid=unit.uid, unit=unit.unit, pages=[], offer=offer)
        self._outbox.send(host, unit)

    def send_answers(self, answers: Sequence[Answer]) -> None:
        """Send answers on to decode, those of each prompt one after the other."""
        for (uid, host), own in groupby(answers, lambda answer: (answer.ticket.uid, answer.ticket.route.decode)):
            generations = [answer.handed_over() for answer in own]
            if host in self._elsewhere:
                self._outbox.send(host, self._offer(uid, generations))
                continue
            for generation in generations:
                self._outbox.send(host, generation)

    def release(self, message: Released) -> None:
        """Give back pages that were read, or are not wanted any more."""
        self._release(message.uid, message.unit)

    def drop(self, uid: int) -> None:
        """Give back all that is held of a request: whoever reads it now finds that its pages were taken anew."""
        for key in [key for key in self._lent if key[0] == uid]:
            self._release(*key)

    def _release(self, uid: int, unit: int | None) -> None:
        kv, visual = self._lent.pop((uid, unit), ([], []))
        self._kv.release(kv)
        self._visual.release(visual)

    def _offer(self, uid: int, generations: list[Generation]) -> Answers:
        kv = [page for each in generations for page in each.pages]
        visual = [part.page for each in generations for part in each.visual]
        self._lent[uid, None] = kv, visual
        pages = _pages(self._kv, list(dict.fromkeys(kv))), _pages(self._visual, list(dict.fromkeys(visual)))
        return Answers(uid, generations, PageOffer(self._name, self._address, *pages))


def _pages(buffer: DevicePages, numbers: list[int]) -> Pages:
    return Pages(tuple(numbers), tuple(buffer.pool.epochs(numbers).tolist()))
