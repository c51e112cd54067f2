"""The records of a folder as tables: `python -m bench.gpu.report FOLDER` prints them again."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]
ORDER = ("probe", "core", "nvdec", "serve")
MACHINE = ("device", "driver", "cuda", "date", "commit", "python", "torch", "triton", "transformers")


def of_folder(folder: Path) -> tuple[str, list[Record]]:
    """Return the table as plain text, and the records of all parts; a line that was cut off is left out."""
    records = list(_records(folder))
    return as_text(records), records


def as_text(records: Sequence[Record]) -> str:
    lines = []
    for record in records:
        if "item" not in record:
            lines += ["", _machine(record)]
            continue
        lines.append(
            f"  {record['item']:<18} {record['status']:<8} {record['seconds']:7.1f} s  {_said(record)}".rstrip()
        )
    return "\n".join([*lines[1:], "", summary(records)])


def as_markdown(records: Sequence[Record]) -> str:
    """Return a page for the documentation: a table of items, and each one's figures."""
    lines = ["# What a GPU told", ""]
    for record in records:
        if "item" not in record:
            lines += ["", _machine(record), "", "| item | | seconds | found |", "| --- | --- | --- | --- |"]
            continue
        said = _said(record).replace("|", "\\|")
        lines.append(f"| `{record['item']}` | {record['status']} | {record['seconds']:.1f} | {said} |")
    for record in records:
        if record.get("figures"):
            lines += ["", f"## {record['item']}", "", *_bullets(record["figures"])]
    return "\n".join([*lines, ""])


def summary(records: Sequence[Record]) -> str:
    states = [record["status"] for record in records if "item" in record]
    counts = {state: states.count(state) for state in ("ok", "failed", "timeout", "skipped")}
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "nothing was run"


def _records(folder: Path) -> Iterator[Record]:
    for part in ORDER:
        path = folder / f"{part}.jsonl"
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                yield json.loads(line)
            except ValueError:
                return


def _machine(header: Record) -> str:
    return ", ".join(
        f"{name} {header[name]}" if name != "device" else header[name] for name in MACHINE if header.get(name)
    )


def _said(record: Record) -> str:
    """Return an item's reason if it has one, else its single figures."""
    if "error" in record:
        return str(record["error"])
    figures = record.get("figures", {})
    return ", ".join(f"{name} {_short(value)}" for name, value in figures.items() if _is_single(value))


def _bullets(figures: Record) -> list[str]:
    lines = [f"* {name}: {_short(value)}" for name, value in figures.items() if _is_single(value)]
    for name, value in figures.items():
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            lines += ["", f"{name}:", "", *_table(value)]
        elif not _is_single(value):
            lines += ["", f"{name}: `{json.dumps(value)}`"]
    return lines


def _table(rows: Sequence[Record]) -> list[str]:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    for row in rows:
        cells = [str(_short(row.get(column, ""))).replace("|", "\\|").replace("\n", " ") for column in columns]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _is_single(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) < 80)


def _short(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value


if __name__ == "__main__":
    print(of_folder(Path(sys.argv[1]))[0])
