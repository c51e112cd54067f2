"""What the workers of a simulated engine have told each other last (as `memory/status.py` keeps it)."""

from unifiedserve.config import Stage


class Status:
    """The board of one engine."""

    def __init__(self) -> None:
        self.share = 1.0
        self._working = dict.fromkeys(Stage, False)
        self._waiting = dict.fromkeys(Stage, (0, False))

    def working(self, stage: Stage) -> bool:
        return self._working[stage]

    def waiting(self, stage: Stage) -> int:
        return self._waiting[stage][0]

    def joining(self, stage: Stage) -> bool:
        return self._waiting[stage][1]

    def set_working(self, stage: Stage, working: bool) -> None:
        self._working[stage] = working

    def set_waiting(self, stage: Stage, requests: int, joining: bool) -> None:
        self._waiting[stage] = requests, joining

    def set_share(self, share: float, tbt: float) -> None:
        self.share = share
