"""Send an instance's results to the next host, in the same memory or another."""

from collections.abc import Container, Sequence
from itertools import groupby

from unifiedserve.memory.device_pages import DevicePages
from unifiedserve.memory.kv_cache import KVCache
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.pages import PageOffer, Pages
from unifiedserve.messages.wire import Answers, Embeddings, FilledPages, Generation, Released
from unifiedserve.worker.language.held import Held
from unifiedserve.worker.language.sequence import Sequence as Answer
from unifiedserve.worker.language.staged_prompt import StagedPrompt
from unifiedserve.worker.outbox import Outbox


class Sender:
    """Send page numbers within a memory. To another one it sends an offer, and holds the pages until they are read."""

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
        self._early: dict[int, int] = {}  # how many full pages of a prompt were offered, by uid

    def send_unit(self, unit: Embeddings, host: str) -> None:
        """Send an encoded unit on to prefill."""
        if host in self._elsewhere:
            self._lent[unit.uid, unit.unit] = [], unit.pages
            offer = PageOffer(self._name, self._address, visual=_pages(self._visual, unit.pages))
            unit = Embeddings(uid=unit.uid, unit=unit.unit, pages=[], offer=offer)
        self._outbox.send(host, unit)

    def send_full_pages(self, prompt: StagedPrompt) -> None:
        """Offer a prompt's full KV pages to the host that will decode, in another memory.

        It does so only when all visual tokens of the prompt are here: then the prompt waits for nobody any more, and a
        host that holds pages for it does not wait for long.
        """
        if prompt.ticket.route.decode not in self._elsewhere or not (prompt.wants_tokens and prompt.all_encoded):
            return
        start, first = self._early.get(prompt.uid, 0), self._kv.state_pages  # states change until the prompt's end
        stop = prompt.prefilled // self._kv.page_size
        if start < stop:
            self._early[prompt.uid] = stop
            pages = _pages(self._kv, prompt.kv[first + start : first + stop])
            self._send_filled(prompt, pages)

    def has_offered(self, uid: int) -> bool:
        """Tell whether a prompt's decoder may have read some of its pages."""
        return uid in self._early

    def end_prompt(self, prompt: StagedPrompt) -> None:
        """Tell the host that was offered pages early that it gets no answers."""
        if self._early.pop(prompt.uid, None) is not None:
            self._send_filled(prompt, Pages())

    def send_answers(self, answers: Sequence[Answer]) -> None:
        """Send answers on to decode, those of each prompt one after the other."""
        for (uid, host), own in groupby(answers, lambda answer: (answer.ticket.uid, answer.ticket.route.decode)):
            generations = [answer.handed_over() for answer in own]
            if host in self._elsewhere:
                self._early.pop(uid, None)
                self._outbox.send(host, self._offer(uid, generations))
                continue
            for generation in generations:
                self._outbox.send(host, generation)

    def held(self) -> list[Held]:
        """Return what is held until others have read it."""
        return [Held(*pages) for pages in self._lent.values()]

    def release(self, message: Released) -> None:
        """Give back pages that were read, or are not wanted any more."""
        self._release(message.uid, message.unit)

    def drop(self, uid: int) -> None:
        """Give back all that is held of a request. A reader finds now that its pages were taken again."""
        self._early.pop(uid, None)
        for key in [key for key in self._lent if key[0] == uid]:
            self._release(*key)

    def _release(self, uid: int, unit: int | None) -> None:
        kv, visual = self._lent.pop((uid, unit), ([], []))
        self._kv.release(kv)
        self._visual.release(visual)

    def _send_filled(self, prompt: StagedPrompt, pages: Pages) -> None:
        offer = PageOffer(self._name, self._address, pages)
        self._outbox.send(prompt.ticket.route.decode, FilledPages(prompt.ticket, offer))

    def _offer(self, uid: int, generations: list[Generation]) -> Answers:
        kv = [page for each in generations for page in each.pages]
        visual = [part.page for each in generations for part in each.visual]
        self._lent[uid, None] = kv, visual
        pages = _pages(self._kv, list(dict.fromkeys(kv))), _pages(self._visual, list(dict.fromkeys(visual)))
        return Answers(uid, generations, PageOffer(self._name, self._address, *pages))


def _pages(buffer: DevicePages, numbers: list[int]) -> Pages:
    return Pages(tuple(numbers), tuple(buffer.pool.epochs(numbers).tolist()))
