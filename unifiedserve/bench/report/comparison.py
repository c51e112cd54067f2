"""Compare runs side by side: rounds of the same are put together, and compared with the first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from unifiedserve.bench.metrics.summary import Summary, Yardstick, summarise
from unifiedserve.bench.records import Record, Run
from unifiedserve.bench.report.rows import Row, spread


@dataclass(frozen=True)
class Group:
    """Gather the rounds of one thing: runs of one name with the same arrivals, each with its summary."""

    label: str
    name: str
    arrivals: str
    rounds: tuple[tuple[Run, Summary], ...]

    @property
    def first(self) -> Run:
        return self.rounds[0][0]

    @property
    def summaries(self) -> list[Summary]:
        return [summary for _, summary in self.rounds]

    @property
    def records(self) -> list[Record]:
        """Return the records of all rounds."""
        return [record for run, _ in self.rounds for record in run.records]

    def seen(self, yardstick: Yardstick) -> list[Record]:
        """Return the records of all rounds that figures are made of."""
        return [record for run, _ in self.rounds for record in yardstick.seen(run.records)]

    def values(self, row: Row) -> list[float]:
        """Return a figure of each round that has it."""
        return [value for summary in self.summaries if (value := row.value(summary)) is not None]


def group_rounds(runs: Sequence[Run], yardstick: Yardstick) -> list[Group]:
    """Return groups in the order in which their first rounds come."""
    rounds = _rounds(runs)
    names = [name for name, _ in rounds]
    return [
        Group(
            label=name if names.count(name) == 1 else f"{name}, {arrivals}",
            name=name,
            arrivals=arrivals,
            rounds=tuple((run, summarise(run.records, yardstick)) for run in same),
        )
        for (name, arrivals), same in rounds.items()
    ]


def _rounds(runs: Sequence[Run]) -> dict[tuple[str, str], list[Run]]:
    """Return the runs of each name with the same arrivals."""
    rounds: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        rounds.setdefault((run.name, run.arrivals), []).append(run)
    return rounds


def readable(groups: Sequence[Group], most: int) -> list[Group]:
    """Return the groups that are drawn over each other: all if they are at most so many, else one rate.

    It is the middle one of the first name's, at which most names still differ.
    """
    rates = [group for group in groups if group.name == groups[0].name]
    if len(groups) <= most or len(rates) == 1:
        return list(groups)
    middle = sorted(rates, key=lambda group: group.summaries[0].offered or 0.0)[len(rates) // 2]
    return [group for group in groups if group.arrivals == middle.arrivals]


def base_of(group: Group, groups: Sequence[Group]) -> Group:
    """Return what a group is compared with: the first name at the same arrivals if there is such, else the first."""
    same = [other for other in groups if (other.name, other.arrivals) == (groups[0].name, group.arrivals)]
    return same[0] if same else groups[0]


def ratios(row: Row, group: Group, other: Group) -> list[float]:
    """Return a figure over another group's: round by round where both have as many, else median over median."""
    ours, theirs = group.values(row), other.values(row)
    if not ours or not theirs:
        return []
    pairs = zip(ours, theirs, strict=True) if len(ours) == len(theirs) else [(median(ours), median(theirs))]
    return [mine / base for mine, base in pairs if base]


def cell(row: Row, group: Group, groups: Sequence[Group]) -> str:
    """Format a figure: the median of the rounds and their range, and the ratio to what it is compared with."""
    text, other = spread(group.values(row)), base_of(group, groups)
    compared = [] if other is group else ratios(row, group, other)
    return f"{text}  ×{spread(compared)}" if compared else text


def differences(runs: Sequence[Run]) -> list[str]:
    """Return a warning for each circumstance in which names differ, or rounds of one."""
    names = list(dict.fromkeys(run.name for run in runs))
    warnings = []
    for what in ("workload", "seed", "arrivals", "model", "media"):
        seen = {name: sorted({str(getattr(run, what)) for run in runs if run.name == name}) for name in names}
        if len({tuple(values) for values in seen.values()}) > 1:
            told = "; ".join(f"{name}: {', '.join(values)}" for name, values in seen.items())
            warnings.append(f"not the same {what}, so figures may not be comparable ({told})")
    return warnings + [warning for (name, _), same in _rounds(runs).items() for warning in _mixed(name, same)]


def _mixed(name: str, rounds: Sequence[Run]) -> Iterator[str]:
    """Yield a warning for each circumstance in which rounds that are put together differ."""
    seen = {
        "workload": {run.workload for run in rounds},
        "model": {run.model for run in rounds},
        "media": {run.media for run in rounds},
        "version of the server": {run.versions.get("server", "") for run in rounds},
    }
    for what, values in seen.items():
        if len(values) > 1:
            told = f"not of the same {what} ({', '.join(sorted(values))})"
            yield f"runs named {name} are put together, though {told}: tell them apart by --name"
