"""Print tables in the terminal: one run by kind of request, or runs side by side."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unifiedserve.bench.metrics.summary import Summary, Yardstick, failures, summarise, summarise_kinds
from unifiedserve.bench.records import Run
from unifiedserve.bench.report.comparison import Group, cell, differences, group_rounds
from unifiedserve.bench.report.rates import rate_points, tell_goodput
from unifiedserve.bench.report.rows import ROWS, Row, digits, present

BRIEF = [row for row in ROWS if row.brief]


def print_summary(run: Run, yardstick: Yardstick, console: Console) -> None:
    """Print the figures of a run, overall and by kind; missed targets are red.

    Raises ConfigError if the yardstick's ramps leave nothing.
    """
    _print_cautions([run], console)
    kinds = summarise_kinds(run.records, yardstick)
    columns = {"all": summarise(run.records, yardstick)} | (kinds if len(kinds) > 1 else {})
    table = _table(f"{run.name}: {run.workload}, {run.arrivals}", list(columns))
    for row in present(BRIEF, list(columns.values())):
        table.add_row(row.label, *(_figure(row, summary) for summary in columns.values()))
    console.print(table)
    if yardstick.slo.asks_nothing:
        console.print("There are no targets to meet: --slo-ttft, --slo-tbt or --slo-factor set some.", style="dim")
    for message, count in failures(run.records):
        console.print(Text(f"{count} failed: {message}", "red"))


def print_comparison(runs: Sequence[Run], yardstick: Yardstick, console: Console) -> None:
    """Print runs beside each other: medians of rounds (lowest–highest), and × the first.

    Raises ConfigError if the yardstick's ramps leave nothing.
    """
    _print_cautions(runs, console)
    for warning in differences(runs):
        console.print(Text(f"warning: {warning}", "yellow"))
    groups = group_rounds(runs, yardstick)
    table = _table(None, [_titled(group) for group in groups])
    for row in present(BRIEF, [summary for group in groups for summary in group.summaries]):
        table.add_row(row.label, *(cell(row, group, groups) for group in groups))
    console.print(table)
    for name, points in rate_points(groups).items():
        if len(points) > 1:
            console.print(Text(f"{name}: {tell_goodput(points)}"))


def _titled(group: Group) -> str:
    count = len(group.rounds)
    return group.label if count == 1 else f"{group.label} ({count} rounds)"


def _table(title: str | None, columns: Sequence[str]) -> Table:
    table = Table(title=title and Text(title), title_justify="left")
    table.add_column("")
    for column in columns:
        table.add_column(Text(column), justify="right")
    return table


def _figure(row: Row, summary: Summary) -> Text:
    return Text(digits(row.value(summary)), "bold red" if row.missed(summary) else "")


def _print_cautions(runs: Sequence[Run], console: Console) -> None:
    for run in runs:
        if run.interrupted is not None:
            console.print(Text(f"{run.name} is not complete: {run.interrupted}", "bold red"))
        for caution in run.cautions:
            console.print(Text(f"warning: {run.name}: {caution}", "yellow"))
