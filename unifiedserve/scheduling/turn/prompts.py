"""The prompts of an instance, in numbers: from their arrival until no stage that is hosted here has work for them."""

from unifiedserve.config import Order
from unifiedserve.scheduling.queue import Queue
from unifiedserve.scheduling.state import Chunk, PrefillState, Unit
from unifiedserve.scheduling.turn.facts import Batched, Begin


class Prompts:
    """Owns them, and counts the pages of the visual buffer that are set aside for them.

    Where `prefills` is false prefill is another instance's: a prompt leaves when all of its units are encoded.
    """

    def __init__(self, order: Order, *, prefills: bool) -> None:
        self.promised = 0  # pages of the visual buffer that are set aside here, and not yet written
        self._prefills = prefills
        self._states: dict[int, PrefillState] = {}
        self._queue: Queue[PrefillState] = Queue(order)

    def __len__(self) -> int:
        return len(self._states)

    def __getitem__(self, uid: int) -> PrefillState:
        """Return a prompt. Raises KeyError if it is not here."""
        return self._states[uid]

    def in_turn(self, now: float) -> list[PrefillState]:
        """Return them in the order in which they are served at this time (monotonic seconds)."""
        return self._queue.in_turn(now)

    def begin(self, begin: Begin) -> None:
        """Take a request in, unless nothing is to be done for it here."""
        shape = begin.shape
        units = [Unit(*unit) for unit in shape.units]
        state = PrefillState(begin.ticket, shape.tokens, shape.kv_pages, units, whole_units=shape.whole_units)
        self._states[begin.ticket.uid] = state
        self._queue.add(state)
        self._drop_if_done(state)

    def batched(self, batch: Batched) -> None:
        """Note that units were encoded here: their visual tokens take the pages set aside for them."""
        for uid, units in batch.work:
            state = self._states[uid]
            if not state.reserved:
                state.reserve()
                self.promised += state.visual_pages
            for unit in units:
                state.encode_unit(unit)
                self.promised -= state.units[unit].pages
            self._drop_if_done(state)

    def take_encoded(self, uid: int, unit: int) -> None:
        """Note that a unit's visual tokens are there: where it was encoded, pages are set aside for all."""
        state = self._states[uid]
        if not state.reserved:
            state.reserve()
        state.encode_unit(unit)

    def advance(self, chunk: Chunk) -> None:
        """Note that all before the end of a chunk is prefilled."""
        state = self._states[chunk.uid]
        state.prefill(chunk.stop)
        self._drop_if_done(state)

    def _drop_if_done(self, state: PrefillState) -> None:
        if state.prefilled == state.num_tokens or (state.all_encoded and not self._prefills):
            del self._states[state.ticket.uid]
            self._queue.remove(state)
