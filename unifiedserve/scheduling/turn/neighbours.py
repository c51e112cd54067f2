"""What the instances of one engine tell each other without messages."""

from typing import Protocol

from unifiedserve.messages.ticket import Place
from unifiedserve.placement import Placement, Stage
from unifiedserve.scheduling.turn.facts import Around, Tells

_KV = (Stage.PREFILL, Stage.DECODE)
_TAKERS = {stage: (stage,) for stage in Stage} | dict.fromkeys(_KV, _KV)  # of the pages that a stage takes
_HEAVY = (Stage.VISION, Stage.ENCODE, Stage.PREFILL)


class Board(Protocol):
    """Where all instances write what the others may know, and read it (`memory/status.py`)."""

    def working(self, instance: str, stage: Stage) -> bool:
        """Tell whether a stage of an instance has work for the cores."""

    def waiting(self, instance: str) -> int:
        """Return how many requests have yet to leave prefill there."""

    def joining(self, instance: str) -> bool:
        """Tell whether some of them leave it very soon."""

    def share(self, instance: str) -> float:
        """Return the share of its budgets that heavy work may take beside the streams there."""

    def first(self, instance: str, stage: Stage) -> Place | None:
        """Return the place of the first there that waits for the stage's pages; None if nobody does."""

    def set_first(self, instance: str, stage: Stage, place: Place | None) -> None:
        """Write the place of the first that waits for the stage's pages."""

    def set_working(self, instance: str, stage: Stage, working: bool) -> None:
        """Write whether a stage has work for the cores."""

    def set_waiting(self, instance: str, requests: int, joining: bool) -> None:
        """Write how many requests have yet to leave prefill, and whether some do very soon."""

    def set_share(self, instance: str, share: float, tbt: float) -> None:
        """Write the share, and the seconds between tokens that it follows from."""


class Neighbours:
    """The other instances on the same cores, as far as one paces itself by them, and what they may know of it."""

    def __init__(self, placement: Placement, name: str, board: Board) -> None:
        self._board = board
        self._name = name
        self._firsts: dict[Stage, Place | None] = {}  # as told last
        self.placed(placement)

    def placed(self, placement: Placement) -> None:
        """Look at the instances of this placement from now on."""
        others = [(other.name, stage) for other in placement.beside(self._name) for stage in other.stages]
        self._heavy = [(other, stage) for other, stage in others if stage in _HEAVY]
        self._prefills = [other for other, stage in others if stage is Stage.PREFILL]
        self._decodes = [other for other, stage in others if stage is Stage.DECODE]
        self._rivals = {stage: self._rivals_of(stage, placement) for stage in Stage}

    @property
    def work(self) -> bool:
        """Tell whether a heavy stage of another instance has work for the cores."""
        return any(self._board.working(other, stage) for other, stage in self._heavy)

    def first(self, stage: Stage) -> Place | None:
        """Return the place of the first that waits for a stage's pages in another instance; None if nobody does."""
        places = (self._board.first(other, stage) for other in self._rivals[stage])
        return min((place for place in places if place is not None), default=None)

    def around(self) -> Around:
        """Return what the others tell."""
        board = self._board
        return Around(
            self.work,
            sum(map(board.waiting, self._prefills)),
            any(map(board.joining, self._prefills)),
            min(map(board.share, self._decodes), default=1.0),
            min(filter(None, map(self.first, _KV)), default=None),
        )

    def tell(self, tells: Tells) -> list[Stage]:
        """Tell them what this one is about to do; return the stages in which others may have waited behind one here
        that does not wait any more.
        """
        for stage, working in tells.working.items():
            self._board.set_working(self._name, stage, working)
        if tells.waiting is not None:
            self._board.set_waiting(self._name, tells.waiting, tells.joining)
        if tells.share is not None:
            self._board.set_share(self._name, tells.share, tells.tbt)
        over: list[Stage] = []
        for stage, place in tells.first.items():
            if self._rivals[stage] and (before := self._firsts.get(stage)) != place:
                self._board.set_first(self._name, stage, place)
                self._firsts[stage] = place
                over += _TAKERS[stage] if before is not None else ()
        return over

    def _rivals_of(self, stage: Stage, placement: Placement) -> list[str]:
        """Return the other hosts of a stage that take pages of the same pools."""
        hosts = dict.fromkeys(host for taker in _TAKERS[stage] for host in placement.hosts(taker))
        others = [host for host in hosts if host != self._name]
        if stage is Stage.VISION:  # it takes them where they are encoded
            return others
        own = placement.memory_of(self._name)
        return [host for host in others if placement.memory_of(host) == own]
