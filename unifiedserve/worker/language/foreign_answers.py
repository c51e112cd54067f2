"""Read answers whose prompt was prefilled in another memory. Decode needs their pages in its own."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from unifiedserve.carriers.base import Copy
from unifiedserve.memory.device_pages import DevicePages
from unifiedserve.memory.kv_cache import KVCache
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.wire import Answers, Generation, Preempted, Released
from unifiedserve.placement import Stage
from unifiedserve.scheduling import WaitingAnswers
from unifiedserve.worker.language.reads import Reads
from unifiedserve.worker.outbox import Outbox

Table = dict[int, int]  # the number of a page there, and here


@dataclass(slots=True)
class _Foreign:
    """Pair what is offered with where it is read to."""

    message: Answers
    transfer: int | None = None
    kv: Table = field(default_factory=dict)
    visual: Table = field(default_factory=dict)
    read: set[int] = field(default_factory=set)  # pages of the KV cache there that need not be read again


class ForeignAnswers:
    """Take pages for all that a prompt's answers hold, or none, and read them."""

    def __init__(
        self,
        kv: KVCache,
        visual: RowBuffer,
        instance: int,
        reads: Reads,
        outbox: Outbox,
        arrived: Callable[[Generation], None],
        lost: Callable[[int], None],
    ) -> None:
        """Tell of each answer that has `arrived`, and of requests (uid) that `lost` all answers."""
        self._kv = kv
        self._visual = visual
        self._instance = instance
        self._reads = reads
        self._outbox = outbox
        self._arrived = arrived
        self._lost = lost
        self._foreign: dict[int, _Foreign] = {}

    def offer(self, message: Answers, early: Table, read: set[int]) -> WaitingAnswers:
        """Take in what can be read, and what was `early`; return what the scheduler sees of it."""
        self._foreign[message.uid] = _Foreign(message, kv=early, read=read)
        offer = message.offer
        return WaitingAnswers(message.generations[0].ticket, len(offer.kv.numbers), len(offer.visual.numbers))

    def begin(self, uid: int) -> Literal["taken", "full"]:
        """Begin to read the answers of a request, if there are pages."""
        foreign = self._foreign[uid]
        offer = foreign.message.offer
        kv = self._take(self._kv, uid, [number for number in offer.kv.numbers if number not in foreign.kv])
        visual = self._take(self._visual, uid, offer.visual.numbers) if kv is not None else None
        if kv is None or visual is None:
            self._kv.release(list((kv or {}).values()))
            return "full"
        foreign.kv |= kv
        foreign.visual = visual
        left = offer.kv.without(foreign.read)
        copies = [
            Copy("kv", *left, [foreign.kv[number] for number in left.numbers]),
            Copy("visual", *offer.visual, list(visual.values())),
        ]
        foreign.transfer = self._reads.begin(
            uid,
            Stage.DECODE,
            offer.address,
            [copy for copy in copies if copy.source],
            lambda error: self._ended(uid, error),
        )
        return "taken"

    def forgo(self, uid: int) -> None:
        """Give back what was read early of answers that are not read yet."""
        foreign = self._foreign[uid]
        self._kv.release(list(foreign.kv.values()))
        foreign.kv, foreign.read = {}, set()

    def drop(self, uid: int, index: int | None = None) -> bool:
        """Forget an answer of a request, or all (None), and give back their pages; return whether none are left."""
        foreign = self._foreign.get(uid)
        if foreign is None:
            return False
        left = [each for each in foreign.message.generations if index not in (None, each.index)]
        foreign.message.generations = left
        if not left:
            self._forget(foreign)
        return not left

    def _take(self, buffer: DevicePages, uid: int, numbers: Sequence[int]) -> Table | None:
        pages = buffer.pool.allocate(len(numbers), uid, self._instance)
        return None if pages is None else dict(zip(numbers, pages.tolist(), strict=True))

    def _forget(self, foreign: _Foreign) -> None:
        del self._foreign[foreign.message.uid]
        if foreign.transfer is not None:
            self._reads.close(foreign.transfer)
        self._kv.release(list(foreign.kv.values()))
        self._visual.release(list(foreign.visual.values()))
        self._outbox.send(foreign.message.offer.instance, Released(foreign.message.uid))

    def _ended(self, uid: int, error: str) -> None:
        foreign = self._foreign[uid]
        foreign.transfer = None
        if error:
            indices = [each.index for each in foreign.message.generations]
            self._forget(foreign)
            for index in indices:
                self._outbox.to_engine(Preempted(uid, index, error))
            self._lost(uid)
            return
        del self._foreign[uid]
        self._outbox.send(foreign.message.offer.instance, Released(uid))
        answers = [_here(each, foreign) for each in foreign.message.generations]
        _share(self._kv, list(foreign.kv.values()), [page for each in answers for page in each.pages])
        _share(self._visual, list(foreign.visual.values()), [part.page for each in answers for part in each.visual])
        for answer in answers:
            self._arrived(answer)


def _here(answer: Generation, foreign: _Foreign) -> Generation:
    """Return an answer with the numbers that its pages have here."""
    pages = [foreign.kv[page] for page in answer.pages]
    visual = [part._replace(page=foreign.visual[part.page]) for part in answer.visual]
    return msgspec.structs.replace(answer, pages=pages, visual=visual)


def _share(buffer: DevicePages, taken: list[int], held: list[int]) -> None:
    """Let each answer hold its pages: there is one reference to each that was taken, and there may be no answer."""
    holders = Counter(held)
    for page, count in holders.items():
        for _ in range(count - 1):
            buffer.pool.retain([page])
    buffer.release([page for page in taken if page not in holders])
