"""What a run found as a table and as a page: `python -m bench.gpu.report FOLDER` prints the table again."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.gpu.brief import is_single, number

Record = dict[str, Any]
MACHINE = ("device", "driver", "cuda", "date", "commit", "python", "torch", "triton", "transformers")
STATES = ("ok", "failed", "timeout", "skipped", "running", "not run")
MOST = 11_000  # characters of a table: of a run's output, its end may be all that is kept
WIDEST = 1500  # characters of a line
LONGEST = 4000  # characters of a figure on the page


def as_text(content: Record) -> str:
    """Return the table, of at most MOST characters: its longest lines are cut."""
    items = content["items"]
    lines = [_machine(content["machine"]), *content["machine"].get("notes", []), *map(_line, items), summary(items)]
    width = WIDEST
    while sum(min(len(line), width) + 1 for line in lines) > MOST:
        width -= 10
    return "\n".join(line if len(line) <= width else f"{line[: width - 1]}…" for line in lines)


def as_markdown(content: Record) -> str:
    """Return a page for the documentation: a table of items, and each one's figures."""
    lines = ["# What a GPU told", "", _machine(content["machine"]), ""]
    lines += [*content["machine"].get("notes", []), "", "| item | | seconds | found |", "| --- | --- | --- | --- |"]
    for record in content["items"]:
        said = _said(record).replace("|", "\\|")
        lines.append(f"| `{record['item']}` | {record['status']} | {record['seconds']:.1f} | {said} |")
    for record in content["items"]:
        if record.get("figures"):
            lines += ["", f"## {record['item']}", "", *_bullets(record["figures"])]
    return "\n".join([*lines, ""])


def summary(items: Sequence[Record]) -> str:
    states = [record["status"] for record in items]
    return ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states) or "nothing was run"


def _line(record: Record) -> str:
    return f"{record['item']:<16} {record['status']:<7} {record['seconds']:4.0f} s  {_said(record)}".rstrip()


def _machine(header: Record) -> str:
    return ", ".join(
        f"{name} {header[name]}" if name != "device" else header[name] for name in MACHINE if header.get(name)
    )


def _said(record: Record) -> str:
    """Return an item's reason if it has one, and what it found."""
    return "; ".join(filter(None, [record.get("error"), record.get("note"), record.get("brief")]))


def _bullets(figures: Record) -> list[str]:
    lines = [f"* {name}: {number(value)}" for name, value in figures.items() if is_single(value)]
    for name, value in figures.items():
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            lines += ["", f"{name}:", "", *_table(value)]
        elif not is_single(value):
            told = json.dumps(value)
            lines += ["", f"{name}: `{told}`" if len(told) < LONGEST else f"{name}: see results.json"]
    return lines


def _table(rows: Sequence[Record]) -> list[str]:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    for row in rows:
        cells = [str(number(row.get(column, ""))).replace("|", "\\|").replace("\n", " ") for column in columns]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    print(as_text(json.loads(Path(sys.argv[1], "results.json").read_text())))
