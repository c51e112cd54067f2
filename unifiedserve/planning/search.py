"""Search for the best candidates: Optuna chooses, bounds prune, processes simulate."""

from collections.abc import Callable
from itertools import islice
from math import inf
from time import monotonic
from typing import Literal, NamedTuple

import msgspec

from unifiedserve.errors import ConfigError
from unifiedserve.planning.candidates import Candidate
from unifiedserve.planning.case import Case
from unifiedserve.planning.goodput import Score, Wanted, score
from unifiedserve.planning.options import Objective
from unifiedserve.planning.pool import Pool
from unifiedserve.planning.ranking import SHOWN, Ranking, Rated
from unifiedserve.planning.space import Space

try:
    import optuna
except ImportError:
    raise ConfigError("the search needs the package optuna: pip install 'unifiedserve[plan]'") from None

Sampler = Literal["tpe", "random"]

_ALL = 0.6  # of the trials and the time, for placements on all devices; the rest is for fewer
_SEARCHING = 0.85  # of the time; the rest is to know the first ones better
_COARSE, _FINE = 0.1, 0.02  # how precisely scores are known while searching, and at the end
_A_BATCH = 3  # candidates a process, between two times that the sampler learns
_START = 16  # candidates before the sampler does more than guess


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """Limit how much may be tried: candidates, and seconds. Without seconds the outcome depends on the seed alone."""

    trials: int
    seconds: float = inf
    seed: int = 0
    sampler: Sampler = "tpe"


class Tried(NamedTuple):
    """Tell how far the search is.

    It counts candidates and simulations so far, those that bounds or a floor ruled out, and has the best.
    """

    candidates: int
    simulations: int
    ruled_out: int
    best: Rated | None


class Search:
    """Try candidates over `devices` and fewer. `ranking` has the findings so far, at any time."""

    def __init__(
        self, case: Case, effort: Effort, objective: Objective, cost: float, tell: Callable[[Tried], None]
    ) -> None:
        """Begin with nothing. A device has to bring `cost` requests a second; `tell` hears of each candidate."""
        self.ranking = Ranking(cost)
        self.tried = Tried(0, 0, 0, None)
        self._case, self._objective, self._effort, self._tell = case, objective, effort, tell
        self._known: dict[Candidate, Score] = {}
        self._ends = monotonic() + effort.seconds

    def run(self, devices: int, pool: Pool) -> None:
        """Search over all devices, then over half of them and so on; know what was found more precisely at the end.

        Raises ConfigError if the model fits on none.
        """
        self._pool = pool
        time, now = _SEARCHING * (self._ends - monotonic()), monotonic()
        for number, share in _shares(devices):
            now += share * time
            self._study(number, round(share * self._effort.trials), now)
        if not self._known:
            raise ConfigError("no placement fits: the weights leave no room for a KV cache on any of the devices")
        self._refine()

    def _study(self, devices: int, trials: int, until: float) -> None:
        space = Space(self._case, devices, self._objective)
        if not space:
            return
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(direction="maximize", sampler=self._sampler())
        left = max(trials, 1)
        if self._effort.sampler == "tpe":
            for choices in islice(space.first([each.candidate for each in self.ranking.best[:SHOWN]]), left):
                study.enqueue_trial(choices)
        size = self._pool.processes  # of a batch: small as long as no floor is known
        while left > 0 and monotonic() < until:
            batch = [study.ask() for _ in range(min(left, size))]
            size = _A_BATCH * self._pool.processes
            candidates = [space.choose(trial) for trial in batch]
            for trial, found in zip(batch, self._scores(candidates, _COARSE, until), strict=True):
                if found.exact:
                    study.tell(trial, found.value)
                else:
                    trial.report(found.value, step=found.simulations)
                    study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            left -= len(batch)

    def _sampler(self) -> "optuna.samplers.BaseSampler":
        if self._effort.sampler == "random":
            return optuna.samplers.RandomSampler(seed=self._effort.seed)
        return optuna.samplers.TPESampler(seed=self._effort.seed, n_startup_trials=_START)

    def _scores(self, candidates: list[Candidate], precision: float, until: float) -> list[Score]:
        """Return what candidates reach, as far as it is of interest; those that were seen before are known."""
        new = list(dict.fromkeys(each for each in candidates if each not in self._known))
        wanted = [Wanted(self._objective, self.ranking.floor(each), precision, until=until) for each in new]
        for candidate, found in zip(new, self._pool.map(score, zip(new, wanted, strict=True)), strict=True):
            self._take(candidate, found)
        return [self._known[each] for each in candidates]

    def _take(self, candidate: Candidate, found: Score) -> None:
        self._known[candidate] = found
        self.ranking.add(Rated(candidate, found))
        count, simulations, out, _ = self.tried
        best = self.ranking.best
        self.tried = Tried(
            count + 1, simulations + found.simulations, out + (not found.exact), best[0] if best else None
        )
        self._tell(self.tried)

    @property
    def nearest(self) -> Rated | None:
        """Return the candidate that would meet longer targets first. None unless nothing meets them."""
        if self.ranking.best:
            return None
        scales = {
            each: score.seen.scale or inf for each, score in self._known.items() if score.seen and not score.exact
        }
        found = min(scales, key=scales.__getitem__, default=None)
        return Rated(found, self._known[found]) if found else None

    def _refine(self) -> None:
        """Find out more precisely what the first ones reach; their order may change."""
        if self._objective == "goodput":
            first = self.ranking.best[:SHOWN]
            for each, found in zip(first, self._pool.map(score, map(self._finely, first)), strict=True):
                if found.seen:
                    too_high = each.score.too_high if found.too_high is None else found.too_high
                    finer = msgspec.structs.replace(found, exact=True, too_high=too_high)
                    self.ranking.add(Rated(each.candidate, finer))

    def _finely(self, rated: Rated) -> tuple[Candidate, Wanted]:
        found = rated.score
        return rated.candidate, Wanted("goodput", found.value, _FINE, found.too_high or inf, self._ends)


def _shares(devices: int) -> list[tuple[int, float]]:
    """Return the numbers of devices to search over in turn, and each share of trials."""
    fewer = [devices >> halves for halves in range(1, devices.bit_length())]
    return [(devices, _ALL if fewer else 1.0), *((number, (1 - _ALL) / len(fewer)) for number in fewer)]
