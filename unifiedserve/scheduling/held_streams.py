"""Watch the streams of a worker that decodes: when tokens came, and what holds the time between them."""

from collections.abc import Collection

from unifiedserve.scheduling.pacing import blend
from unifiedserve.scheduling.state import Budget
from unifiedserve.scheduling.tbt_control import TbtControl

Key = tuple[int, int]


class HeldStreams:
    """Learn from each step that decodes. `control` says what heavy work may take beside the next ones."""

    def __init__(self, budget: Budget, share: float = 1.0) -> None:
        self.control = TbtControl(share)
        self._budget = budget
        self._streams: frozenset[Key] = frozenset()
        self._came = 0.0  # when their last tokens did, seconds
        self._alone = 0.0  # seconds between tokens lately while nothing else was done
        self._beside = False

    def note_heavy(self) -> None:
        """Note that heavy work is done between the last step and the next."""
        self._beside = True

    def came(self, keys: Collection[Key], now: float, beside: bool) -> None:
        """Learn that these sequences got a token, with heavy work beside that step or not."""
        gap, streams, held = now - self._came, self._streams, beside or self._beside
        self._came, self._streams, self._beside = now, frozenset(keys), beside
        if streams.isdisjoint(keys):
            return
        if not held:
            self._alone = blend(self._alone, gap)
        elif self._budget.holds:
            self.control = self.control.after(gap, max(self._budget.slo_tbt, self._budget.pace * self._alone))
