"""Find rates that no schedule can hold, without simulating: stages need more time than their devices have.

All work of the requests that hold their targets has to be done by the last of their deadlines, on the devices that host
its stages. That goes for each set of stages: devices that host none of them cannot help.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, combinations, product
from math import ceil, inf

from unifiedserve.placement import Instance, Placement, Stage
from unifiedserve.planning.candidates import Candidate
from unifiedserve.planning.case import Case
from unifiedserve.planning.objective import GOAL, last_due
from unifiedserve.planning.work import least_work
from unifiedserve.profiles import HardwareProfile

_COMPUTING = (Stage.ENCODE, Stage.PREFILL, Stage.DECODE)


class Cut:
    """Hold a set of stages with the devices' seconds.

    Each request needs some, and the devices give so many in a second.
    """

    def __init__(self, stages: tuple[Stage, ...], seconds: list[float], capacity: float) -> None:
        self.stages = stages
        self.seconds = seconds
        self.capacity = capacity

    @property
    def throughput(self) -> float:
        """Return how many requests a second there are at most when all wait."""
        return self.capacity * len(self.seconds) / total if (total := sum(self.seconds)) else inf

    def goodput(self, span: float, slack: float) -> float:
        """Return the rate up to which nine tenths of the requests may be in time.

        They come within `span` seconds at one a second, and the last deadline is so much later (`slack`, seconds).
        """
        needed = sum(sorted(self.seconds)[: ceil(GOAL * len(self.seconds) - 1e-9)]) / self.capacity
        return span / (needed - slack) if needed > slack else inf


def cuts_of(case: Case, candidate: Candidate) -> list[Cut]:
    """Return the sets of stages of a candidate: vision, which a GPU has engines for, and all of the others."""
    refused = case.refused(candidate)
    works = [
        dict.fromkeys(Stage, 0.0) if arrival.ticket.uid in refused else least_work(arrival, case.profile, candidate)
        for arrival in case.arrivals
    ]
    placement = candidate.table(case.profile.device.cores)
    return [
        Cut(stages, [sum(work[stage] for stage in stages) for work in works], capacity)
        for stages in _sets(case.profile)
        if (capacity := _capacity(frozenset(stages), placement, candidate, case.profile))
    ]


def most_goodput(case: Case, candidate: Candidate) -> float:
    """Return a rate (requests a second) that the goodput cannot exceed."""
    empty = case.records(1.0, [[]] * len(case.arrivals))
    first = max(case.slo.ttft_of(record) for record in empty)
    last = max(last_due(each, case.slo, tokens) - each.due for each, tokens in zip(empty, case.tokens, strict=True))
    span, cuts = case.workload.times[-1], cuts_of(case, candidate)
    return min((cut.goodput(span, last if Stage.DECODE in cut.stages else first) for cut in cuts), default=inf)


def most_throughput(case: Case, candidate: Candidate) -> float:
    """Return the most requests a second when all wait from the start."""
    return tightest(case, candidate).throughput


def tightest(case: Case, candidate: Candidate) -> Cut:
    """Return the stages whose devices do the fewest requests a second; of equals the fewest stages."""
    return min(cuts_of(case, candidate), key=lambda cut: (cut.throughput, len(cut.stages)))


def _sets(profile: HardwareProfile) -> Iterator[tuple[Stage, ...]]:
    """Yield sets of stages. On a CPU vision takes cores like the others; a GPU's engines do nothing else."""
    stages = tuple(Stage) if profile.device.kind == "cpu" else _COMPUTING
    yield from chain.from_iterable(combinations(stages, count) for count in range(1, len(stages) + 1))
    if profile.device.kind == "cuda":
        yield (Stage.VISION,)


def _capacity(stages: frozenset[Stage], placement: Placement, candidate: Candidate, profile: HardwareProfile) -> float:
    """Return the device seconds a second of all devices that host any stage."""
    if profile.device.kind == "cpu":
        hosts = [each for each in placement.instances if stages.intersection(each.stages)]
        cores = profile.device.cores
        return len(set().union(*(each.cores or range(cores) for each in hosts))) / cores
    groups: dict[str, list[Instance]] = {}
    for instance in placement.instances:
        groups.setdefault(instance.memory, []).append(instance)
    if stages == {Stage.VISION}:
        return sum(any(Stage.VISION in each.stages for each in group) for group in groups.values())
    dual = candidate.runs_dual(profile.device.kind)
    alike = Counter(tuple(tuple(each.stages) for each in group) for group in groups.values())
    return sum(count * _of_device(stages, hosted, dual, profile) for hosted, count in alike.items())


def _of_device(
    stages: frozenset[Stage], hosted: tuple[tuple[Stage, ...], ...], dual: bool, profile: HardwareProfile
) -> float:
    """Return the most that processes on one GPU get done at once. Their stages slow each other."""
    choices = [_at_once(stages.intersection(own), dual) for own in hosted]
    return max(_speed([stage for chosen in running for stage in chosen], profile) for running in product(*choices))


def _at_once(stages: Collection[Stage], dual: bool) -> list[tuple[Stage, ...]]:
    """Return what a process may run at a time: nothing, a stage, or with dual streams encode beside another."""
    others = [stage for stage in stages if stage is not Stage.ENCODE]
    pairs = [(Stage.ENCODE, stage) for stage in others] if dual and Stage.ENCODE in stages else []
    return [(), *((stage,) for stage in stages), *pairs]


def _speed(running: Sequence[Stage], profile: HardwareProfile) -> float:
    """Return the seconds of work of these stages done in a second when all run."""
    total = 0.0
    for place, stage in enumerate(running):
        slower = 1.0
        for other in (*running[:place], *running[place + 1 :]):
            slower *= profile.factor(stage, other)
        total += 1 / slower
    return total
