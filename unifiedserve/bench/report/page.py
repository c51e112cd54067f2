"""The report as one page: tables, pictures and where it all comes from."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from unifiedserve.bench.metrics.summary import Yardstick, by_kind, failures, summarise, summarise_kinds
from unifiedserve.bench.records import Record, Run
from unifiedserve.bench.report.comparison import Group, cell, differences, group_rounds, readable
from unifiedserve.bench.report.markup import Cell, document, element, folded, section, table
from unifiedserve.bench.report.rows import MS, NOTHING, ROWS, Row, digits, present
from unifiedserve.bench.slo import Slo

MOST_CURVES = 6  # over each other, so that they can be told apart
BY_KIND = "By kind of request. Red: fewer hold their target than the figure stands for."
SIDE_BY_SIDE = (
    "Medians of the rounds (lowest–highest), whose number is in the head. × is the ratio to the first name at the same "
    "arrivals, or to the first column; round by round where there are as many."
)


def make_page(runs: Sequence[Run], yardstick: Yardstick) -> str:
    """Return the page of one run or of several side by side. Raises ConfigError if the ramps leave nothing."""
    groups = group_rounds(runs, yardstick)
    title = f"Benchmark: {', '.join(dict.fromkeys(run.name for run in runs))}"
    content = [*_cautions(runs), *_figures(groups, yardstick), *_pictures(groups, yardstick), *_rest(groups, yardstick)]
    return document(title, Path(__file__).with_name("page.css").read_text(), content)


def _cautions(runs: Sequence[Run]) -> Iterator[str]:
    for run in runs:
        if run.interrupted is not None:
            yield element("p", f"{run.name} is not complete: {run.interrupted}", "partial")
    for warning in differences(runs):
        yield element("p", warning, "warning")


def _figures(groups: Sequence[Group], yardstick: Yardstick) -> Iterator[str]:
    """Return the targets, and the rows that matter most: side by side, or of one run by kind."""
    yield section("targets", "Targets", _told(yardstick))
    brief = [row for row in ROWS if row.brief]
    if len(groups) == len(groups[0].rounds) == 1:
        yield section("figures", "Figures", BY_KIND, _by_kind(groups[0].first, yardstick, brief))
    else:
        yield section("figures", "Side by side", SIDE_BY_SIDE, _side_by_side(groups, brief))


def _all_figures(groups: Sequence[Group], yardstick: Yardstick) -> Iterator[str]:
    if len(groups) > 1 or len(groups[0].rounds) > 1:
        yield folded("side by side", _side_by_side(groups, ROWS))
    for group in groups:
        for number, (run, _) in enumerate(group.rounds, 1):
            title = group.label if len(group.rounds) == 1 else f"{group.label}, round {number}"
            yield folded(title, _by_kind(run, yardstick, ROWS))


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


def _pictures(groups: Sequence[Group], yardstick: Yardstick) -> Iterator[str]:
    from unifiedserve.bench.report.plots.attainment import draw_attainment_over_rate, draw_attainment_over_scale
    from unifiedserve.bench.report.plots.distributions import draw_distributions
    from unifiedserve.bench.report.plots.progress import draw_progress
    from unifiedserve.bench.report.plots.timelines import draw_gantt, draw_timelines

    drawn = readable(groups, MOST_CURVES)
    where = "" if len(drawn) == len(groups) else f" At {drawn[0].arrivals}."
    first = {group.label: group.first.records for group in drawn}
    seen = {group.label: _seen(group, yardstick) for group in drawn}
    curves = seen if len(seen) > 1 else by_kind(_seen(drawn[0], yardstick))
    yield _picture(
        "attainment-over-rate",
        "Attainment over rate",
        "Share of requests that hold their targets. Dashed: the goal of 90 %; vertical: the goodput, interpolated. "
        "Bars: 95 % intervals of the mean of rounds.",
        draw_attainment_over_rate(groups),
        "It needs runs of one name at two rates or more.",
    )
    yield _picture(
        "attainment-over-scale",
        "Attainment over the scale of the targets",
        f"Share of requests that would hold the targets if all were so many times as long. Dashed: 90 %.{where}",
        draw_attainment_over_scale(curves, yardstick.slo),
        "It needs targets and requests.",
    )
    yield _picture(
        "distributions",
        "Latencies",
        f"Share of values that are at most so long, of complete answers; rounds are put together.{where}",
        draw_distributions(_of_kinds(seen) if len(seen) > 1 else {"": curves}),
        "There are no complete answers.",
    )
    yield _picture(
        "timelines",
        "Tokens of each request",
        f"A line a request from when it was due; a tick a token. The first round of each.{where}",
        draw_timelines(first),
        "Nothing was sent.",
    )
    yield _picture(
        "gantt",
        "Phases of each request",
        "By the server's trace. A phase is as long as the time spent in it, phases are drawn end to end: where stages "
        f"overlap, they reach past the end of the answer.{where}",
        draw_gantt(first),
        "The server gave no trace.",
    )
    yield _picture(
        "progress",
        "Progress of the whole system",
        f"Tokens of all requests; triangles: a video arrives. The first round of each.{where}",
        draw_progress(first),
        "There are no tokens.",
    )


def _picture(anchor: str, title: str, note: str, svg: str | None, without: str) -> str:
    return section(anchor, title, without) if svg is None else section(anchor, title, note, svg)


def _seen(group: Group, yardstick: Yardstick) -> list[Record]:
    """Return the records of all rounds that figures are made of."""
    return [record for run, _ in group.rounds for record in yardstick.seen(run.records)]


def _of_kinds(curves: dict[str, list[Record]]) -> dict[str, dict[str, list[Record]]]:
    """Return the curves of each kind of request."""
    kinds = sorted({record.kind for records in curves.values() for record in records})
    return {kind: {label: by_kind(records).get(kind, []) for label, records in curves.items()} for kind in kinds}


def _rest(groups: Sequence[Group], yardstick: Yardstick) -> Iterator[str]:
    yield section("phases", "Time by phase", "Mean / median of a request, in ms.", *_phases(groups, yardstick))
    yield section("all-figures", "All figures", "Percentiles of everything.", *_all_figures(groups, yardstick))
    yield section("failures", "Failures", "What failed, and how often.", *_failures(groups))
    yield section("provenance", "Where this comes from", "", *(_provenance(group) for group in groups))


def _phases(groups: Sequence[Group], yardstick: Yardstick) -> Iterator[str]:
    for group in groups:
        records = _seen(group, yardstick)
        columns = {"all": summarise(records, Yardstick()).phases}
        columns |= {kind: summary.phases for kind, summary in summarise_kinds(records, Yardstick()).items()}
        if columns["all"]:
            rows = (
                (
                    phase,
                    [
                        Cell(
                            f"{digits(of[phase].mean * MS)} / {digits(of[phase].median * MS)}"
                            if phase in of
                            else NOTHING
                        )
                        for of in columns.values()
                    ],
                )
                for phase in columns["all"]
            )
            yield element("h3", group.label)
            yield table(list(columns), rows)


def _failures(groups: Sequence[Group]) -> Iterator[str]:
    for group in groups:
        if found := failures(group.records):
            yield element("h3", group.label)
            yield table(["requests"], ((message, [Cell(str(count))]) for message, count in found))


def _provenance(group: Group) -> str:
    run = group.first
    facts = {
        "command": shlex.join(run.command),
        "started": ", ".join(run.started for run, _ in group.rounds),
        "seconds": ", ".join(f"{run.seconds:.1f}" for run, _ in group.rounds),
        "seed": ", ".join(str(run.seed) for run, _ in group.rounds),
        "server": run.url,
        "model": run.model,
        "workload": run.workload,
        "arrivals": run.arrivals,
    }
    rows = ((name, [Cell(value)]) for name, value in (facts | run.machine | run.versions).items())
    return element("h3", group.label) + table([], rows, "facts")


def _told(yardstick: Yardstick) -> str:
    """Return the targets and the part of the runs that counts, in a sentence or two."""
    slo = yardstick.slo
    told = [*_ttft(slo), *([f"TBT {digits(slo.tbt * MS)} ms"] if slo.tbt is not None else [])]
    text = f"{'; '.join(told) or 'None'}."
    if yardstick.ramp_up or yardstick.ramp_down:
        text += f" The first {yardstick.ramp_up:g} s and the last {yardstick.ramp_down:g} s of arrivals are left out."
    return text


def _ttft(slo: Slo) -> Iterator[str]:
    if slo.ttft is not None:
        shares = [(slo.ttft_per_prompt_token, "prompt token"), (slo.ttft_per_video_second, "second of video")]
        more = "".join(f" and {digits(seconds * MS)} ms a {what}" for seconds, what in shares if seconds)
        yield f"TTFT {digits(slo.ttft)} s{more}"
    for kind, seconds in slo.ttft_of_kind.items():
        yield f"TTFT of {kind} {digits(seconds)} s"
