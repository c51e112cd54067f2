"""Rank what was found so far: of each placement the best way to run it."""

import msgspec

from unifiedserve.planning.candidates import Candidate
from unifiedserve.planning.goodput import Score

SHOWN = 4  # the best and three runners-up
_BETTER = 1.02  # times the best of its placement: less is not worth a search
_NEAR = 0.5  # of the best: what is below is no runner-up, even where there are few


class Rated(msgspec.Struct, frozen=True):
    """Pair a candidate with what it reaches."""

    candidate: Candidate
    score: Score


class Ranking:
    """Rank the best of each placement by what it reaches, less what its devices cost (requests a second each)."""

    def __init__(self, cost: float = 0.0) -> None:
        self._cost = cost
        self._best: dict[str, Rated] = {}

    def add(self, rated: Rated) -> None:
        """Take in a candidate that is its placement's best so far. One that reaches nothing is left out."""
        before = self._best.get(rated.candidate.placement)
        if rated.score.exact and rated.score.value > 0 and (not before or rated.score.value >= before.score.value):
            self._best[rated.candidate.placement] = rated

    @property
    def best(self) -> list[Rated]:
        """Return all placements that reach anything, the best first; of equals the one with fewer devices."""
        return sorted(self._best.values(), key=lambda each: (-self._net(each), each.candidate.devices))

    def floor(self, candidate: Candidate) -> float:
        """Return what a candidate has to reach to be of interest (requests a second).

        That is a little more than the best of its placement if that is shown, else the last that is shown. With fewer
        devices than others it may also be the first with so many.
        """
        best = self.best
        own = [each for each in best[:SHOWN] if each.candidate.placement == candidate.placement]
        if own:
            return _BETTER * own[0].score.value
        if not best:
            return 0.0
        last = self._net(best[SHOWN - 1]) if len(best) >= SHOWN else _NEAR * self._net(best[0])
        fewer = [each.score.value for each in best if each.candidate.devices <= candidate.devices]
        return max(0.0, min(last + self._cost * candidate.devices, max(fewer, default=0.0)))

    def front(self) -> list[Rated]:
        """Return the best for so many devices or fewer, where more devices reach more (the Pareto front)."""
        front: list[Rated] = []
        for each in sorted(self._best.values(), key=lambda each: (each.candidate.devices, -each.score.value)):
            if not front or each.score.value > front[-1].score.value:
                front.append(each)
        return front

    def _net(self, rated: Rated) -> float:
        return rated.score.value - self._cost * rated.candidate.devices
