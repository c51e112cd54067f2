"""Measure how long requests wait for the stages of a simulated engine."""

from collections.abc import Collection

from unifiedserve.placement import Stage


class Waits:
    """Record when a stage could begin with a request, and when it did (seconds)."""

    def __init__(self) -> None:
        self._ready: dict[tuple[int, Stage], float] = {}
        self._begun: dict[tuple[int, Stage], float] = {}
        self._fresh: set[int] = set()  # uids of those that are to decode

    def ready(self, uid: int, stage: Stage, now: float) -> None:
        """Note that a stage can begin with a request; the first time counts."""
        if self._ready.setdefault((uid, stage), now) == now and stage is Stage.DECODE:
            self._fresh.add(uid)

    def last_unit(self, uid: int, now: float) -> None:
        """Note that a unit is encoded: prefill can begin for good once the last one is."""
        self._ready[uid, Stage.PREFILL] = now

    def begun(self, uid: int, stage: Stage, now: float) -> None:
        """Note that a stage begins with a request; the first time counts."""
        self._begun.setdefault((uid, stage), now)

    def stepped(self, keys: Collection[tuple[int, int]], start: float) -> None:
        """Note that a step began that took these answers further."""
        if self._fresh:
            for uid in self._fresh.intersection(uid for uid, _ in keys):
                self.begun(uid, Stage.DECODE, start)
                self._fresh.discard(uid)

    def of(self, uid: int) -> dict[Stage, float]:
        """Return the seconds that a request waited for each stage that has begun with it."""
        begun = {stage: self._begun[uid, stage] for stage in Stage if (uid, stage) in self._begun}
        return {stage: max(0.0, start - self._ready.get((uid, stage), start)) for stage, start in begun.items()}
