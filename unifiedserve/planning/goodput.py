"""Measure what a candidate reaches, by simulating it at rate after rate."""

from math import inf
from time import monotonic

import msgspec

from unifiedserve.bench.goodput.bracket import Bracket
from unifiedserve.planning.bounds import most_goodput, most_throughput
from unifiedserve.planning.candidates import Candidate
from unifiedserve.planning.case import Case, TimeUpError
from unifiedserve.planning.objective import GOAL, Latencies
from unifiedserve.planning.options import Objective

_APART = 50.0  # times the work of a request lie between two that are alone
_AT_ONCE = 1e9  # requests a second: all come together
_FIRST = 1.0  # requests a second, where no bound is known


class Score(msgspec.Struct, frozen=True):
    """Rate a candidate: requests a second, what clients see then, and its simulations.

    Not `exact`: it stays below `value`. Where `value` is 0, `seen` is of few requests.
    """

    value: float
    simulations: int
    exact: bool = True
    seen: Latencies | None = None
    too_high: float | None = None  # the lowest rate that was tried in vain


class Wanted(msgspec.Struct, frozen=True):
    """Tell what a candidate has to reach to be of interest (`floor`).

    It is to be known as precisely as a share of it, and may be simulated until a time (monotonic seconds). It is known
    to fail at the rate `failed`.
    """

    objective: Objective
    floor: float = 0.0
    precision: float = 0.05
    failed: float = inf
    until: float = inf


def score(case: Case, candidate: Candidate, wanted: Wanted) -> Score:
    """Return what a candidate reaches; that it does not reach the floor is found out first, and enough.

    One whose weights do not fit reaches nothing.
    """
    if not case.fits(candidate):
        return Score(0.0, 0, exact=False)
    return _goodput(case, candidate, wanted) if wanted.objective == "goodput" else _throughput(case, candidate, wanted)


def _goodput(case: Case, candidate: Candidate, wanted: Wanted) -> Score:
    ceiling, floor = min(wanted.failed, highest(case, candidate, "goodput")), wanted.floor
    if ceiling <= floor:
        return Score(ceiling, 0, exact=False)
    bracket = Bracket(min(ceiling / 2, max(floor, _FIRST)), wanted.precision)
    if ceiling < inf:
        bracket.tell(ceiling, False)
    tries = _Tries(case, candidate, bracket, wanted.until)
    if tries.hold(floor or bracket.next_rate() or _FIRST) or tries.out_of_time:
        return tries.search()
    if floor:
        return Score(floor, 1, exact=False)
    if (near := tries.alone()).attainment < GOAL:
        return Score(0.0, tries.count, exact=False, seen=near)
    return tries.search()


class _Tries:
    """Simulate a candidate at one rate after another, and keep the results so far."""

    def __init__(self, case: Case, candidate: Candidate, bracket: Bracket, until: float) -> None:
        self.count = 0
        self.out_of_time = False
        self._case, self._candidate, self._bracket, self._until = case, candidate, bracket, until
        self._seen: Latencies | None = None

    def hold(self, rate: float) -> bool:
        """Tell whether enough requests hold their targets at a rate; not if time is up before that is known."""
        try:
            found = attained(self._case, self._candidate, rate, self._until)
        except TimeUpError:
            self.out_of_time = True
            return False
        self.count += 1
        self._bracket.tell(rate, found is not None)
        self._seen = found or self._seen
        return found is not None

    def alone(self) -> Latencies:
        """Return what clients see at a rate where few requests meet. In bursts they may all the same."""
        rate = most_throughput(self._case, self._candidate) / _APART
        run = self._case.simulate(self._candidate, rate)
        assert run is not None
        self._seen = self._case.latencies(run)
        self.count += 1
        if self._seen.attainment >= GOAL:
            self._bracket.tell(rate, True)
        return self._seen

    def search(self) -> Score:
        """Narrow the bracket as far as is wanted and there is time for; return what was reached."""
        while not self.out_of_time and (rate := self._bracket.next_rate()):
            self.hold(rate)
        low, high = self._bracket.low, self._bracket.high
        exact = low is not None or not self.out_of_time
        return Score(low or 0.0, self.count, exact, self._seen, None if self.out_of_time else high)


def highest(case: Case, candidate: Candidate, objective: Objective) -> float:
    """Return what a candidate cannot exceed (requests a second).

    Requests that come faster than they are served wait longer and longer: few of them may hold their targets all the
    same, but for as long as they come that is no goodput.
    """
    lasting = most_throughput(case, candidate)
    return min(lasting, most_goodput(case, candidate)) if objective == "goodput" else lasting


def attained(case: Case, candidate: Candidate, rate: float, until: float = inf) -> Latencies | None:
    """Return what clients see at a rate; None if too few requests hold their targets.

    Raises TimeUpError after `until` (monotonic seconds).
    """
    if monotonic() > until:
        raise TimeUpError
    run = case.simulate(candidate, rate, GOAL, until)
    found = case.latencies(run) if run else None
    return found if found and found.attainment >= GOAL else None


def _throughput(case: Case, candidate: Candidate, wanted: Wanted) -> Score:
    """Return how many requests a second are completed when all are there from the start (EPD's E2ETP)."""
    ceiling = highest(case, candidate, "e2etp-cost")
    if ceiling <= wanted.floor:
        return Score(ceiling, 0, exact=False)
    try:
        run = case.simulate(candidate, _AT_ONCE, until=wanted.until)
    except TimeUpError:
        return Score(ceiling, 1, exact=False)
    assert run is not None
    ended = [
        record.ended
        for record, tokens in zip(run.records, case.tokens, strict=True)
        if len(record.token_times) == tokens
    ]
    return Score(len(ended) / max(ended, default=inf), 1, bool(ended), case.latencies(run))
