"""Keep what the workers of a simulated engine told each other last (as `memory/status.py` does)."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from unifiedserve.messages.ticket import Place
from unifiedserve.placement import Stage


class Status:
    """Hold the board of one engine."""

    def __init__(self) -> None:
        self._shares: defaultdict[str, float] = defaultdict(lambda: 1.0)
        self._working: defaultdict[tuple[str, Stage], bool] = defaultdict(bool)
        self._waiting: defaultdict[str, tuple[int, bool]] = defaultdict(lambda: (0, False))
        self._firsts: dict[tuple[str, Stage, str], Place | None] = {}
        self._pending: defaultdict[str, Counter[int]] = defaultdict(Counter)  # pages of patches, by request

    def working(self, instance: str, stage: Stage) -> bool:
        return self._working[instance, stage]

    def waiting(self, instance: str) -> int:
        return self._waiting[instance][0]

    def joining(self, instance: str) -> bool:
        return self._waiting[instance][1]

    def share(self, instance: str) -> float:
        return self._shares[instance]

    def set_working(self, instance: str, stage: Stage, working: bool) -> None:
        self._working[instance, stage] = working

    def set_waiting(self, instance: str, requests: int, joining: bool) -> None:
        self._waiting[instance] = requests, joining

    def set_share(self, instance: str, share: float, tbt: float) -> None:
        self._shares[instance] = share

    def first(self, instance: str, stage: Stage, memory: str) -> Place | None:
        return self._firsts.get((instance, stage, memory))

    def set_first(self, instance: str, stage: Stage, memory: str, place: Place | None) -> None:
        self._firsts[instance, stage, memory] = place

    def give(self, receiver: str, uid: int, patch_pages: int) -> None:
        self._pending[receiver][uid] += patch_pages

    def encoded(self, instance: str, uid: int, patch_pages: int) -> None:
        self._pending[instance][uid] -= patch_pages
        if not self._pending[instance][uid]:
            del self._pending[instance][uid]

    def forget(self, uid: int) -> None:
        """Forget what is yet to be encoded of a request."""
        for pending in self._pending.values():
            pending.pop(uid, None)

    def died(self, instance: str) -> None:
        """Forget what an instance told: its worker has died."""
        self._shares.pop(instance, None)
        self._waiting.pop(instance, None)
        for stage in Stage:
            self._working.pop((instance, stage), None)
        self._firsts = {key: place for key, place in self._firsts.items() if key[0] != instance}

    def least_pending(self, encoders: Sequence[str]) -> str:
        return min(encoders, key=lambda encoder: self._pending[encoder].total())
