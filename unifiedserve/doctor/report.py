"""Print the report: a coloured table with rich, the same table as plain text without it, or JSON."""

import json
from collections.abc import Sequence
from typing import Any

from unifiedserve.doctor.check import Check, Status

Report = Sequence[tuple[str, Sequence[Check]]]
COLOURS = {Status.OK: "green", Status.WARN: "yellow", Status.MISSING: "dim"}


def cpu_path_works(report: Report) -> bool:
    return not any(check.blocks for _, checks in report for check in checks)


def as_json(report: Report) -> str:
    checks = [_as_dict(title, check) for title, group in report for check in group]
    return json.dumps({"ok": cpu_path_works(report), "checks": checks}, indent=2)


def show(report: Report) -> None:
    try:
        from rich.console import Console
    except ImportError:
        print(as_text(report))
        return
    console = Console()
    console.print(_as_table(report))
    style = "bold green" if cpu_path_works(report) else "bold red"
    console.print(summary(report), style=style, highlight=False)


def as_text(report: Report) -> str:
    rows = [check for _, group in report for check in group]
    width = max((len(check.name) for check in rows), default=0)
    lines = []
    for title, group in report:
        lines += ["", title]
        for check in group:
            lines.append(f"  {check.name:<{width}}  {check.status:<7}  {check.value}")
            if check.remedy:
                lines.append(f"  {'':<{width}}           → {check.remedy}")
    return "\n".join([*lines[1:], "", summary(report)])


def summary(report: Report) -> str:
    blocking = [check.name for _, group in report for check in group if check.blocks]
    if blocking:
        return f"Not ready to serve: {', '.join(blocking)}"
    return "Ready to serve on this machine's CPU."


def _as_table(report: Report) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="unifiedserve doctor")
    for column in ("check", "value", "status", "remedy"):
        table.add_column(column, overflow="fold")
    for title, group in report:
        table.add_section()
        table.add_row(Text(title, style="bold"))
        for check in group:
            colour = "bold red" if check.blocks else COLOURS[check.status]
            status = Text(check.status.value, style=colour)
            table.add_row(Text("  " + check.name), Text(check.value), status, Text(check.remedy))
    return table


def _as_dict(group: str, check: Check) -> dict[str, Any]:
    return {
        "group": group,
        "name": check.name,
        "value": check.value,
        "status": check.status.value,
        "required": check.required,
        "remedy": check.remedy,
        "details": dict(check.details),
    }
