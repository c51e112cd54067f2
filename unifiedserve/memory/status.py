"""The stages' status, told without messages: a few numbers in shared memory."""

from ipc_buffers import Arena
from unifiedserve.config import Stage

_STAGES = list(Stage)
_WORKING, _PEAK, _WAITING, _JOINING, _SHARE, _TBT = range(6)
_COLUMNS = 6
_ITEM_BYTES = 8
_MILLIONTHS = 1_000_000


class Status:
    """One row a stage: whether it has work for the cores, the most pages of its buffer that were in use, how many
    requests it has yet to bring to its end, and whether it is doing that right now. Decode tells what share of their
    budgets other stages may take (until then all of it), and the time between tokens, for which that is so.

    A row is written by the stage's worker alone, an aligned number at a time, so all read without locks. The buffer of
    a stage is the one it takes pages from: patch for vision, visual for encode, KV for the others.
    """

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self._numbers = arena.buffer().cast("q")

    @staticmethod
    def create(name: str) -> Arena:
        """Create the arena; raises as `Arena.create`."""
        return Arena.create(name, len(_STAGES) * _COLUMNS * _ITEM_BYTES)

    def set_working(self, stage: Stage, working: bool) -> None:
        self._numbers[_place(stage, _WORKING)] = working

    def working(self, stage: Stage) -> bool:
        return self._numbers[_place(stage, _WORKING)] != 0

    def set_waiting(self, stage: Stage, requests: int, joining: bool) -> None:
        """Tell how many requests, wherever they are, have yet to leave `stage`; `joining`: some do very soon."""
        self._numbers[_place(stage, _WAITING)] = requests
        self._numbers[_place(stage, _JOINING)] = joining

    def waiting(self, stage: Stage) -> int:
        return self._numbers[_place(stage, _WAITING)]

    def joining(self, stage: Stage) -> bool:
        return self._numbers[_place(stage, _JOINING)] != 0

    def set_share(self, share: float, tbt: float) -> None:
        """Tell the share in (0, 1], and the time between tokens, 99th percentile, in seconds (0: unknown)."""
        self._numbers[_place(Stage.DECODE, _SHARE)] = round(share * _MILLIONTHS)
        self._numbers[_place(Stage.DECODE, _TBT)] = round(tbt * _MILLIONTHS)

    @property
    def share(self) -> float:
        return self._numbers[_place(Stage.DECODE, _SHARE)] / _MILLIONTHS or 1.0

    @property
    def tbt(self) -> float:
        return self._numbers[_place(Stage.DECODE, _TBT)] / _MILLIONTHS

    def used(self, stage: Stage, pages: int) -> None:
        """Tell how many pages of the stage's buffer are in use now."""
        place = _place(stage, _PEAK)
        if pages > self._numbers[place]:
            self._numbers[place] = pages

    def peak(self, stage: Stage) -> int:
        return self._numbers[_place(stage, _PEAK)]


def _place(stage: Stage, column: int) -> int:
    return _STAGES.index(stage) * _COLUMNS + column
