"""What a campaign came to: as JSON, and as a short page."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.campaign.cases import Outcome
from bench.campaign.faults import summary
from bench.campaign.faults.trial import Seen
from bench.campaign.replay import Replayed

_MIB = 1 << 20
_MOST_ROWS = 40
_LONGEST = 400  # characters of what is said of a violation


class Finding(msgspec.Struct):
    """Something that must not be, and the case that shows it."""

    case: str
    kind: str
    what: str


class LongGap(msgspec.Struct):
    """A gap of a stream in milliseconds, what the machine added to it, and the cases that ran meanwhile."""

    ms: float
    late_ms: float
    waited_ms: float
    cases: list[str]
    again: bool = False  # it came again when one of these cases ran alone


class Report(msgspec.Struct, kw_only=True):
    """A campaign's figures."""

    seed: int
    seconds: float
    parts: dict[str, dict[str, Any]]
    findings: list[Finding]
    quiet_gap_ms: float
    gaps: list[LongGap]
    stream_answers: int
    memory_mib: dict[str, float]
    slowest: list[tuple[str, str, float]]
    replayed: list[Replayed]
    faults: list[Seen] = []


def of_part(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the figures of a part: cases, statuses, and the same of each kind."""
    kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in outcomes:
        kinds[each.kind]["violation" if each.violation else each.status] += 1
    total: Counter[str] = sum(kinds.values(), Counter())
    return {
        "cases": len(outcomes),
        "statuses": dict(total.most_common()),
        "kinds": {kind: dict(counts.most_common()) for kind, counts in sorted(kinds.items())},
    }


def findings_of(outcomes: Sequence[Outcome]) -> list[Finding]:
    """Return what cases found."""
    return [Finding(each.name, each.kind, each.violation[:_LONGEST]) for each in outcomes if each.violation]


def slowest_of(outcomes: Sequence[Outcome]) -> list[tuple[str, str, float]]:
    """Return the cases that took longest, with their seconds."""
    ranked = sorted(outcomes, key=lambda each: each.began - each.ended)[:10]
    return [(each.name, each.kind, round(each.ended - each.began, 2)) for each in ranked]


def mib(size: int) -> float:
    """Return bytes in MiB."""
    return round(size / _MIB, 1)


def write(report: Report, folder: Path, name: str) -> None:
    """Write the report as JSON and as a page."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    (folder / f"{name}.md").write_text(as_markdown(report))
    if report.faults:
        summary.write(report.faults, folder)


def as_markdown(report: Report) -> str:
    """Return the page."""
    lines = [
        "# What hostile clients and files did",
        "",
        f"Seed {report.seed}, {sum(part['cases'] for part in report.parts.values())} cases in {report.seconds:.0f} s, "
        "beside four token streams: `python bench/campaign/run.py`.",
        "",
        "| part | cases | answers |",
        "| --- | --- | --- |",
        *(f"| {name} | {part['cases']} | {_counted(part['statuses'])} |" for name, part in report.parts.items()),
        "",
        "| measure | |",
        "| --- | --- |",
        f"| longest gap of a stream, quiet server | {report.quiet_gap_ms:.0f} ms |",
        f"| longest gap in the campaign | {max((gap.ms for gap in report.gaps), default=0):.0f} ms |",
        *(f"| memory (PSS), {name} | {size:.0f} MiB |" for name, size in report.memory_mib.items()),
        f"| answers of the streams | {report.stream_answers} |",
        f"| findings | {len(report.findings)} |",
        "",
    ]
    if report.replayed:
        lines += _replayed(report.replayed)
    if report.findings:
        lines += ["| case | kind | what |", "| --- | --- | --- |"]
        lines += [f"| `{each.case}` | {each.kind} | {_cell(each.what)} |" for each in report.findings[:_MOST_ROWS]]
        lines.append("")
    if report.gaps:
        lines += ["| gap | woken late | waited for a core | cases at that time |", "| --- | --- | --- | --- |"]
        lines += [
            f"| {gap.ms:.0f} ms | {gap.late_ms:.0f} ms | {gap.waited_ms:.0f} ms | {', '.join(gap.cases)} |"
            for gap in report.gaps
        ]
        lines.append("")
    return "\n".join(lines)


def _replayed(rows: Sequence[Replayed]) -> list[str]:
    """Return the table of cases that were tried alone."""
    return [
        "Tried alone, one after the other, each beside four streams; memory is that of the process that answers HTTP:",
        "",
        "| case | answers | seconds | longest gap | woken late | waited for a core | memory | back within 64 MiB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {row.kind} | {row.status or row.violation[:60]} | {row.seconds:.1f} | {row.gap_ms:.0f} ms "
            f"| {row.late_ms:.0f} ms | {row.waited_ms:.0f} ms | {row.mib_before:.0f} → {row.mib_after:.0f} MiB "
            f"| after {row.back_seconds} s |"
            for row in rows
        ),
        "",
    ]


def _counted(statuses: dict[str, int]) -> str:
    return ", ".join(f"{status}: {count}" for status, count in statuses.items())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:200]
