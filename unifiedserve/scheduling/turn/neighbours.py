"""What the instances of one engine tell each other without messages."""

from collections.abc import Collection
from typing import Protocol

from unifiedserve.config import Stage
from unifiedserve.scheduling.turn.facts import Around, Tells

_HEAVY = (Stage.VISION, Stage.ENCODE, Stage.PREFILL)


class Board(Protocol):
    """Where all instances write what the others may know, and read it (`memory/status.py`)."""

    @property
    def share(self) -> float:
        """The share of its budgets that heavy work may take beside streams."""

    def working(self, stage: Stage) -> bool:
        """Tell whether a stage has work for the cores."""

    def waiting(self, stage: Stage) -> int:
        """Return how many requests have yet to leave a stage."""

    def joining(self, stage: Stage) -> bool:
        """Tell whether some of them leave it very soon."""

    def set_working(self, stage: Stage, working: bool) -> None:
        """Write whether a stage has work for the cores."""

    def set_waiting(self, stage: Stage, requests: int, joining: bool) -> None:
        """Write how many requests have yet to leave a stage, and whether some do very soon."""

    def set_share(self, share: float, tbt: float) -> None:
        """Write the share, and the seconds between tokens that it follows from."""


class Neighbours:
    """The other instances, as far as one paces itself by them, and what they may know of it."""

    def __init__(self, beside: Collection[Stage], board: Board) -> None:
        """Read of `board` what is told of the stages that may want the same cores."""
        self._board = board
        self._heavy = [stage for stage in _HEAVY if stage in beside]
        self._decodes = Stage.DECODE in beside

    @property
    def work(self) -> bool:
        """Tell whether a heavy stage of another instance has work for the cores."""
        return any(map(self._board.working, self._heavy))

    def around(self) -> Around:
        """Return what the others tell."""
        board, elsewhere = self._board, Stage.PREFILL in self._heavy
        return Around(
            self.work,
            board.waiting(Stage.PREFILL) if elsewhere else 0,
            elsewhere and board.joining(Stage.PREFILL),
            board.share if self._decodes else 1.0,
        )

    def tell(self, tells: Tells) -> None:
        """Tell them what this one is about to do."""
        for stage, working in tells.working.items():
            self._board.set_working(stage, working)
        if tells.waiting is not None:
            self._board.set_waiting(Stage.PREFILL, tells.waiting, tells.joining)
        if tells.share is not None:
            self._board.set_share(tells.share, tells.tbt)
