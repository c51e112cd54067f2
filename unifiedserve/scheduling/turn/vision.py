"""Take one turn of the vision stage: admission, and the order of decoding. Pure, as all turns."""

from collections.abc import Mapping
from typing import NamedTuple

from unifiedserve.config import Order
from unifiedserve.messages.ticket import Place, Ticket
from unifiedserve.placement import FIRST_MEMORY, Stage
from unifiedserve.scheduling.queue import Queue
from unifiedserve.scheduling.state import VisionState
from unifiedserve.scheduling.turn.facts import Tells
from unifiedserve.scheduling.vision import NOBODY, BufferPages, schedule_vision


class MediaCame(NamedTuple):
    """Report a new request. It needs so many pages of each buffer of a memory."""

    ticket: Ticket
    patch_pages: int
    visual_pages: int
    memory: str = FIRST_MEMORY


class MediaTook(NamedTuple):
    """Report that a request has taken its pages, and is in decoding."""

    uid: int


class MediaLeft(NamedTuple):
    """Report that a request is decoded or not wanted, if it is still here."""

    uid: int


#: everything that can happen to vision
VisionEvent = MediaCame | MediaTook | MediaLeft


class VisionFacts(NamedTuple):
    """Hold what vision looks up: the time (monotonic seconds), what is free in each memory, and others' waits.

    In other vision instances the requests of the places `first_elsewhere` wait for pages, by memory.
    """

    now: float
    free: Mapping[str, BufferPages]
    first_elsewhere: Mapping[str, Place] = NOBODY


class VisionDecision(NamedTuple):
    """Name the requests to admit, new turns of those in decoding, and news for others.

    `first` are the places of the first that wait for pages of each memory; None if nobody does. Without a message there
    is nothing to do before `wait_until` (monotonic seconds).
    """

    admit: list[int]
    turns: Mapping[int, float]  # by uid: monotonic seconds
    tells: Tells
    wait_until: float
    first: Mapping[str, Place | None]


class VisionTurn:
    """Hold the requests of a vision stage, in numbers. Its counts follow what has happened, never what was planned."""

    def __init__(self, order: Order) -> None:
        self._queue: Queue[VisionState] = Queue(order)
        self._states: dict[int, VisionState] = {}
        self._turns: dict[int, float] = {}  # as they were decided last, of those in decoding

    def note(self, event: VisionEvent) -> None:
        """Take in what has happened. Raises KeyError if a request that is not here has taken pages."""
        match event:
            case MediaCame():
                state = VisionState(*event)
                self._states[event.ticket.uid] = state
                self._queue.add(state)
            case MediaTook(uid):
                self._states[uid].admit()
            case MediaLeft(uid):
                if left := self._states.pop(uid, None):
                    self._queue.remove(left)
                    self._turns.pop(uid, None)

    def take(self, facts: VisionFacts) -> VisionDecision:
        """Return what to do next. Admitted requests may find that others have taken the pages meanwhile."""
        states = self._queue.in_turn(facts.now)
        admit = schedule_vision(states, facts.free, facts.first_elsewhere)
        going = {state.ticket.uid: state.place[1] for state in states if state.admitted} | {
            uid: self._states[uid].place[1] for uid in admit
        }
        new = set(admit)  # also those that were to be admitted before, and did not get the pages
        changed = {uid: turn for uid, turn in going.items() if uid in new or self._turns.get(uid) != turn}
        self._turns |= changed
        first: dict[str, Place | None] = dict.fromkeys(facts.free)
        for state in reversed([state for state in states if state.ticket.uid not in going]):
            first[state.memory] = state.place
        return VisionDecision(
            admit,
            changed,
            Tells({Stage.VISION: bool(going)}),
            min((state.rank_ends for state in states), default=float("inf")),
            first,
        )

    def counts(self) -> tuple[int, int]:
        """Return how many requests are in decoding, and how many wait for that."""
        running = sum(state.admitted for state in self._states.values())
        return running, len(self._states) - running
