"""What the instances of one engine tell each other without messages."""

from typing import Protocol

from unifiedserve.placement import Placement, Stage
from unifiedserve.scheduling.turn.facts import Around, Tells

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
        others = [(other.name, stage) for other in placement.beside(name) for stage in other.stages]
        self._heavy = [(other, stage) for other, stage in others if stage in _HEAVY]
        self._prefills = [other for other, stage in others if stage is Stage.PREFILL]
        self._decodes = [other for other, stage in others if stage is Stage.DECODE]

    @property
    def work(self) -> bool:
        """Tell whether a heavy stage of another instance has work for the cores."""
        return any(self._board.working(other, stage) for other, stage in self._heavy)

    def around(self) -> Around:
        """Return what the others tell."""
        board = self._board
        return Around(
            self.work,
            sum(map(board.waiting, self._prefills)),
            any(map(board.joining, self._prefills)),
            min(map(board.share, self._decodes), default=1.0),
        )

    def tell(self, tells: Tells) -> None:
        """Tell them what this one is about to do."""
        for stage, working in tells.working.items():
            self._board.set_working(self._name, stage, working)
        if tells.waiting is not None:
            self._board.set_waiting(self._name, tells.waiting, tells.joining)
        if tells.share is not None:
            self._board.set_share(self._name, tells.share, tells.tbt)
