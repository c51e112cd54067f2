"""Write the report as one page: tables, pictures and where it all comes from."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from unifiedserve.bench.metrics.summary import Yardstick
from unifiedserve.bench.records import Run, Timing
from unifiedserve.bench.report.comparison import Group, differences, group_rounds
from unifiedserve.bench.report.markup import Cell, document, element, section, table
from unifiedserve.bench.report.rows import MS, digits
from unifiedserve.bench.report.tables import all_figures, brief_figures, failed, phase_times
from unifiedserve.bench.slo import Slo


def make_page(runs: Sequence[Run], yardstick: Yardstick) -> str:
    """Return the page of one run or of several side by side. Raises ConfigError if the ramps leave nothing."""
    from unifiedserve.bench.report.pictures import pictures

    groups = group_rounds(runs, yardstick)
    title = f"Benchmark: {', '.join(dict.fromkeys(run.name for run in runs))}"
    content = [
        *_cautions(runs),
        section("targets", "Targets", _told(yardstick)),
        brief_figures(groups, yardstick),
        *pictures(groups, yardstick),
        section("phases", "Time by phase", "Mean / median of a request, in ms.", *phase_times(groups, yardstick)),
        section("all-figures", "All figures", "Percentiles of everything.", *all_figures(groups, yardstick)),
        section("failures", "Failures", "What failed, and how often.", *failed(groups)),
        section("provenance", "Where this comes from", "", *(_provenance(group) for group in groups)),
    ]
    return document(title, Path(__file__).with_name("page.css").read_text(), content)


def _cautions(runs: Sequence[Run]) -> Iterator[str]:
    for run in runs:
        if run.interrupted is not None:
            yield element("p", f"{run.name} is not complete: {run.interrupted}", "partial")
        for caution in run.cautions:
            yield element("p", f"{run.name}: {caution}", "warning")
    for warning in differences(runs):
        yield element("p", warning, "warning")


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
        **({"client's timing": _timing(run.timing)} if run.timing else {}),
    }
    rows = ((name, [Cell(value)]) for name, value in (facts | run.machine | run.versions).items())
    return element("h3", group.label) + table([], rows, "facts")


def _timing(timing: Timing) -> str:
    lateness = f"requests late by p50 {digits(timing.late_p50 * MS)} ms, p99 {digits(timing.late_p99 * MS)} ms"
    loop = f"event loop by p99 {digits(timing.loop_late_p99 * MS)} ms"
    text = f"{lateness}, at most {digits(timing.late_max * MS)} ms; {loop}; {timing.cpu:.0%} of a core"
    if timing.ttft_here is None or timing.ttft_there is None:
        return text
    return (
        f"{text}; mean TTFT from sending {digits(timing.ttft_here)} s here, {digits(timing.ttft_there)} s by the server"
    )


def _told(yardstick: Yardstick) -> str:
    """Return the targets and the counted part of the runs, in a sentence or two."""
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
        tokens = slo.tokens_of_kind.get(kind)
        longer = f", more in proportion for prompts above {tokens:g} tokens" if tokens else ""
        yield f"TTFT of {kind} {digits(seconds)} s{longer}"
