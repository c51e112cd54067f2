"""Tell the instances of one engine about each other without messages."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from unifiedserve.messages.ticket import Place
from unifiedserve.placement import Placement, Stage
from unifiedserve.scheduling.turn.facts import Around, Tells

_KV = (Stage.PREFILL, Stage.DECODE)  # which take pages of the KV cache
_HEAVY = (Stage.VISION, Stage.ENCODE, Stage.PREFILL)


class Board(Protocol):
    """Define where instances write what the others may know, and read it (`memory/status.py`)."""

    def working(self, instance: str, stage: Stage) -> bool:
        """Tell whether a stage of an instance has work for the cores."""

    def waiting(self, instance: str) -> int:
        """Return how many requests have yet to leave prefill there."""

    def joining(self, instance: str) -> bool:
        """Tell whether some of them leave it very soon."""

    def share(self, instance: str) -> float:
        """Return the share of its budgets that heavy work may take beside the streams there."""

    def first(self, instance: str, stage: Stage, memory: str) -> Place | None:
        """Return the place of the first there that waits for the stage's pages.

        None if nobody waits for this memory's.
        """

    def set_first(self, instance: str, stage: Stage, memory: str, place: Place | None) -> None:
        """Write the place of the first that waits for the stage's pages of a memory."""

    def set_working(self, instance: str, stage: Stage, working: bool) -> None:
        """Write whether a stage has work for the cores."""

    def set_waiting(self, instance: str, requests: int, joining: bool) -> None:
        """Write how many requests have yet to leave prefill, and whether some do very soon."""

    def set_share(self, instance: str, share: float, tbt: float) -> None:
        """Write the share, and the seconds between tokens that it follows from."""


class Neighbours:
    """Know the other instances on the same cores, and tell them of this one. It paces itself by them."""

    def __init__(self, placement: Placement, name: str, board: Board) -> None:
        self._board = board
        self._name = name
        self._memory = placement.memory_of(name)
        self._firsts: dict[tuple[Stage, str], Place | None] = {}  # as told last, by memory
        self.placed(placement)

    def placed(self, placement: Placement) -> None:
        """Look at the instances of this placement from now on."""
        others = [(other.name, stage) for other in placement.beside(self._name) for stage in other.stages]
        self._heavy = [(other, stage) for other, stage in others if stage in _HEAVY]
        self._prefills = [other for other, stage in others if stage is Stage.PREFILL]
        self._decodes = [other for other, stage in others if stage is Stage.DECODE]
        self._visions = [name for name in placement.hosts(Stage.VISION) if name != self._name]
        takers = dict.fromkeys(name for stage in _KV for name in placement.takers(stage, self._memory))
        self._rivals = [name for name in takers if name != self._name]  # for pages of the KV cache
        self._encoding = [name for name in placement.memories if placement.takers(Stage.VISION, name)]

    @property
    def work(self) -> bool:
        """Tell whether a heavy stage of another instance has work for the cores."""
        return any(self._board.working(other, stage) for other, stage in self._heavy)

    def first_of_vision(self) -> dict[str, Place]:
        """Return the places of the first in other vision instances that wait for each memory."""
        firsts = {memory: self._first(self._visions, (Stage.VISION,), memory) for memory in self._encoding}
        return {memory: place for memory, place in firsts.items() if place is not None}

    def around(self) -> Around:
        """Return what the others tell."""
        board = self._board
        return Around(
            self.work,
            sum(map(board.waiting, self._prefills)),
            any(map(board.joining, self._prefills)),
            min(map(board.share, self._decodes), default=1.0),
            self._first(self._rivals, _KV, self._memory),
            bool(self._rivals),
        )

    def tell(self, tells: Tells) -> list[Stage]:
        """Tell them what this one is about to do.

        Returns the stages in which others may have waited behind one here that does not wait any more.
        """
        for stage, working in tells.working.items():
            self._board.set_working(self._name, stage, working)
        if tells.waiting is not None:
            self._board.set_waiting(self._name, tells.waiting, tells.joining)
        if tells.share is not None:
            self._board.set_share(self._name, tells.share, tells.tbt)
        if not self._rivals:
            return []
        over = [stage for stage, place in tells.first.items() if self._tell_first(stage, self._memory, place)]
        return [taker for _ in over for taker in _KV]

    def tell_first(self, first: Mapping[str, Place | None]) -> list[str]:
        """Tell the other vision instances which request waits first for pages of each memory.

        Returns the memories in which they may have waited behind one here that does not wait any more.
        """
        if not self._visions:
            return []
        return [memory for memory, place in first.items() if self._tell_first(Stage.VISION, memory, place)]

    def _first(self, others: Iterable[str], stages: Sequence[Stage], memory: str) -> Place | None:
        places = (self._board.first(other, stage, memory) for other in others for stage in stages)
        return min((place for place in places if place is not None), default=None)

    def _tell_first(self, stage: Stage, memory: str, place: Place | None) -> bool:
        """Tell it if it has changed; return whether somebody else is first now."""
        before = self._firsts.get((stage, memory))
        if before == place:
            return False
        self._board.set_first(self._name, stage, memory, place)
        self._firsts[stage, memory] = place
        return before is not None
