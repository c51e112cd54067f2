"""Make the tables of a page."""

from collections.abc import Iterator, Sequence

from unifiedserve.bench.metrics.phases import PhaseTime, breakdown
from unifiedserve.bench.metrics.summary import Yardstick, by_kind, failures, summarise, summarise_kinds
from unifiedserve.bench.records import Phase, Run
from unifiedserve.bench.report.comparison import Group, cell
from unifiedserve.bench.report.markup import Cell, element, folded, section, table
from unifiedserve.bench.report.rows import MS, NOTHING, ROWS, Row, digits, present

BY_KIND = "By kind of request. Red: fewer hold their target than the figure stands for."
SIDE_BY_SIDE = (
    "Medians of the rounds (lowest–highest), whose number is in the head. × is the ratio to the first name at the same "
    "arrivals, or to the first column; round by round where there are as many."
)


def brief_figures(groups: Sequence[Group], yardstick: Yardstick) -> str:
    """Return the rows that matter most: side by side, or of one run by kind."""
    brief = [row for row in ROWS if row.brief]
    if _is_one_run(groups):
        return section("figures", "Figures", BY_KIND, _by_kind(groups[0].first, yardstick, brief))
    return section("figures", "Side by side", SIDE_BY_SIDE, _side_by_side(groups, brief))


def all_figures(groups: Sequence[Group], yardstick: Yardstick) -> Iterator[str]:
    """Return every row, side by side and of each run by kind, folded."""
    if not _is_one_run(groups):
        yield folded("side by side", _side_by_side(groups, ROWS))
    for group in groups:
        for number, (run, _) in enumerate(group.rounds, 1):
            title = group.label if len(group.rounds) == 1 else f"{group.label}, round {number}"
            yield folded(title, _by_kind(run, yardstick, ROWS))


def phase_times(groups: Sequence[Group], yardstick: Yardstick) -> Iterator[str]:
    """Return the time of each phase by kind, of groups with a trace."""
    for group in groups:
        records = group.seen(yardstick)
        columns = {"all": breakdown(records)} | {kind: breakdown(some) for kind, some in by_kind(records).items()}
        if phases := list(columns["all"]):
            rows = ((phase, [_phase(phase, times) for times in columns.values()]) for phase in phases)
            yield element("h3", group.label)
            yield table(list(columns), rows)


def failed(groups: Sequence[Group]) -> Iterator[str]:
    """Return each message of failed requests with its number, of groups with such."""
    for group in groups:
        if found := failures(group.records):
            yield element("h3", group.label)
            yield table(["requests"], ((message, [Cell(str(count))]) for message, count in found))


def _is_one_run(groups: Sequence[Group]) -> bool:
    return len(groups) == len(groups[0].rounds) == 1


def _side_by_side(groups: Sequence[Group], rows: Sequence[Row]) -> str:
    shown = present(rows, [summary for group in groups for summary in group.summaries])
    cells = ((row.label, [Cell(cell(row, group, groups)) for group in groups]) for row in shown)
    return table([f"{group.label} ({len(group.rounds)})" for group in groups], cells)


def _by_kind(run: Run, yardstick: Yardstick, rows: Sequence[Row]) -> str:
    columns = {"all": summarise(run.records, yardstick)} | summarise_kinds(run.records, yardstick)
    figures = (
        (row.label, [Cell(digits(row.value(summary)), row.missed(summary)) for summary in columns.values()])
        for row in present(rows, list(columns.values()))
    )
    return table(list(columns), figures)


def _phase(phase: Phase, times: dict[Phase, PhaseTime]) -> Cell:
    if phase not in times:
        return Cell(NOTHING)
    return Cell(f"{digits(times[phase].mean * MS)} / {digits(times[phase].median * MS)}")
