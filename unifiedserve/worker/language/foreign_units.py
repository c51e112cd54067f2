"""Read units that were encoded in another memory. Prefill needs their visual tokens in its own."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Literal

from unifiedserve.carriers.base import Copy
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.pages import PageOffer
from unifiedserve.messages.wire import Embeddings, Released, Wanted
from unifiedserve.placement import Stage
from unifiedserve.worker.cache_log import CacheLog
from unifiedserve.worker.language.prompt_table import PromptTable
from unifiedserve.worker.language.reads import Reads
from unifiedserve.worker.language.staged_prompt import StagedPrompt
from unifiedserve.worker.outbox import Outbox

Taken = Literal["taken", "full", "stale"]  # pages; "stale": what was to be recalled is gone


@dataclass(slots=True)
class _Foreign:
    """Track a prompt's offers, pages for what is missing, and transfers under way."""

    offers: dict[int, PageOffer] = field(default_factory=dict)  # by unit
    room: dict[int, list[int]] | None = None
    reading: set[int] = field(default_factory=set)


class ForeignUnits:
    """Take pages for all visual tokens of a prompt, or none. They are read as they are offered."""

    def __init__(
        self,
        visual: RowBuffer,
        instance: int,
        reads: Reads,
        outbox: Outbox,
        prompts: PromptTable,
        log: CacheLog,
        arrived: Callable[[Embeddings], None],
        lost: Callable[[int, str], None],
    ) -> None:
        """Tell of each unit that has `arrived`, and of prompts (uid) that `lost` units.

        The reason for a loss is told, too. Units that arrived are kept in the cache, which the `log` tells.
        """
        self._visual = visual
        self._instance = instance
        self._prompts = prompts
        self._log = log
        self._reads = reads
        self._outbox = outbox
        self._arrived = arrived
        self._lost = lost
        self._foreign: dict[int, _Foreign] = {}

    def offer(self, message: Embeddings, offer: PageOffer) -> None:
        """Take in what can be read of a prompt that is here."""
        self._foreign.setdefault(message.uid, _Foreign()).offers[message.unit] = offer

    def begin(self, uid: int, units: Iterable[int]) -> Taken:
        """Begin to read these units, if there are pages for all of the prompt's; cached units arrive at once.

        Units without a known address are asked for: other nodes encode it now that there is room.
        """
        foreign, prompt = self._foreign[uid], self._prompts[uid]
        if foreign.room is None and (taken := self._take_room(foreign, prompt)) != "taken":
            return taken
        offers = sorted(((unit, foreign.offers.pop(unit)) for unit in units), key=lambda each: each[1][:2])
        for (source, address), own in groupby(offers, lambda each: each[1][:2]):
            if address:
                self._read(foreign, uid, source, address, dict(own))
            else:
                self._outbox.to_engine(Wanted(uid, [unit for unit, _ in own]))
        return "taken"

    def drop(self, uid: int) -> None:
        """Forget a prompt, if it is here, and give back pages for what is missing."""
        if foreign := self._foreign.pop(uid, None):
            for transfer in foreign.reading:
                self._reads.close(transfer)
            self._visual.release([page for pages in (foreign.room or {}).values() for page in pages])

    def _take_room(self, foreign: _Foreign, prompt: StagedPrompt) -> Taken:
        units = prompt.shape.units
        cached = {unit: pages for unit, pages in prompt.request.reuse.units.items() if not units[unit].encoded}
        recalled = self._visual.recall_all(cached.values(), prompt.uid, self._instance)
        if recalled is None:  # first: the others might take them
            return "stale"
        missing = [unit for unit, shape in enumerate(units) if not shape.encoded and unit not in cached]
        taken = self._visual.take([units[unit].tokens for unit in missing], prompt.uid, self._instance)
        if taken is None:
            self._visual.release(recalled)
            return "full"
        foreign.room = dict(zip(missing, taken, strict=True))
        for unit, pages in cached.items():
            self._arrived(Embeddings(uid=prompt.uid, unit=unit, pages=list(pages.numbers)))
        return "taken"

    def _read(self, foreign: _Foreign, uid: int, source: str, address: str, offers: dict[int, PageOffer]) -> None:
        assert foreign.room is not None
        copies = [Copy("visual", *offer.visual, foreign.room[unit]) for unit, offer in offers.items()]
        ended = partial(self._ended, foreign, uid, source, list(offers))
        transfer = self._reads.begin(uid, Stage.PREFILL, address, copies, lambda error: ended(transfer, error))
        foreign.reading.add(transfer)

    def _ended(self, foreign: _Foreign, uid: int, source: str, units: list[int], transfer: int, error: str) -> None:
        foreign.reading.discard(transfer)
        if error:
            self._lost(uid, error)
            return
        assert foreign.room is not None
        keys = self._prompts[uid].request.unit_keys
        for unit in units:
            self._outbox.send(source, Released(uid, unit))
            pages = foreign.room.pop(unit)
            if keys:
                self._log.keep(keys[unit], pages)
            self._arrived(Embeddings(uid=uid, unit=unit, pages=pages))
        if not (foreign.room or foreign.offers):
            self._foreign.pop(uid, None)
