"""Count the prompts of an instance, from arrival until no stage here needs them."""

from collections.abc import Collection

from unifiedserve.config import Order
from unifiedserve.scheduling.queue import Queue
from unifiedserve.scheduling.state import Chunk, PrefillState, Unit
from unifiedserve.scheduling.turn.facts import Begin, Renewed


class Prompts:
    """Own the prompts."""

    def __init__(self, order: Order) -> None:
        self._states: dict[int, PrefillState] = {}
        self._prefilled_here = 0
        self._offering: set[int] = set()  # uids
        self._queue: Queue[PrefillState] = Queue(order)

    @property
    def any_here(self) -> bool:
        """Tell whether any request is here that has something left to encode or to prefill."""
        return bool(self._states)

    def __len__(self) -> int:
        """Count those that get their first token here."""
        return self._prefilled_here

    def __contains__(self, uid: int) -> bool:
        return uid in self._states

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
        state = PrefillState(
            begin.ticket,
            shape.tokens,
            shape.kv_pages,
            units,
            whole_units=shape.whole_units,
            prefills_here=shape.prefills_here,
            room_pages=shape.room_pages,
            window=shape.window,
        )
        self._states[begin.ticket.uid] = state
        self._prefilled_here += state.prefills_here
        self._queue.add(state)
        self._drop_if_done(state)

    def ready(self, uid: int, unit: int) -> None:
        """Note that the patches of a unit are here."""
        self._states[uid].decode_unit(unit)

    def decoded(self, uid: int) -> None:
        """Note that no more patches come for a prompt."""
        state = self._states[uid]
        state.decoded = True
        self._drop_if_done(state)

    def renew(self, renewed: Renewed) -> None:
        """Note what is left of the prefix that a waiting prompt may reuse."""
        state = self._states[renewed.uid]
        state.kv_pages = renewed.kv_pages
        state.prefill(renewed.prefilled)

    def encoded(self, uid: int, unit: int) -> None:
        """Note that a unit's visual tokens are there, wherever it was encoded."""
        state = self._states[uid]
        state.encode_unit(unit)
        self._drop_if_done(state)

    def offering(self, now: float) -> list[PrefillState]:
        """Return those with units to read from another memory, in the order of service."""
        return [state for state in self.in_turn(now) if state.offered] if self._offering else []

    def offer(self, uid: int, unit: int) -> None:
        """Note that a unit's visual tokens can be read from another memory."""
        self._states[uid].offered.append(unit)
        self._offering.add(uid)

    def pull(self, uid: int, units: Collection[int]) -> None:
        """Note that these are being read."""
        state = self._states[uid]
        state.pull(units)
        if not state.offered:
            self._offering.discard(uid)

    def admit(self, uid: int) -> None:
        """Note that a prompt has all of its KV pages."""
        state = self._states[uid]
        if not state.admitted:
            state.admit()

    def advance(self, chunk: Chunk) -> None:
        """Note that all before the end of a chunk is prefilled."""
        state = self._states[chunk.uid]
        state.prefill(chunk.stop)
        self._drop_if_done(state)

    def drop(self, uid: int) -> None:
        """Forget a prompt, if it is here."""
        self._offering.discard(uid)
        if state := self._states.pop(uid, None):
            self._prefilled_here -= state.prefills_here
            self._queue.remove(state)

    def counts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return how many are encoded and how many wait for that. The same of prefill follows."""
        states = self._states.values()
        encoding = [state.decoding for state in states if not state.all_encoded]
        admitted = [state.admitted for state in states if state.prefills_here]
        return (sum(encoding), len(encoding) - sum(encoding)), (sum(admitted), len(admitted) - sum(admitted))

    def _drop_if_done(self, state: PrefillState) -> None:
        if state.done:
            self.drop(state.ticket.uid)
