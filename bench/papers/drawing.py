"""What the papers draw and the report's page does not have: latencies over the rate, stages side by side, rates."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from unifiedserve.bench.metrics.phases import PHASES
from unifiedserve.bench.metrics.summary import Summary
from unifiedserve.bench.report.plots.theme import COLOURS, PHASE_COLOURS

LINES = (*COLOURS, "#000000")
STAGES = {phase: PHASE_COLOURS[phase] for phase in PHASES if phase not in ("handoff", "decode")}
REST = {"in no stage, or not told": "white"}
EDGE = "#999999"

Pick = Callable[[Summary], float | None]
OVER_RATE: dict[str, Pick] = {
    "requests that hold their targets": lambda summary: summary.attainment,
    "TTFT, p50, s": lambda summary: summary.ttft.p50 if summary.ttft else None,
    "TTFT, p99, s": lambda summary: summary.ttft.p99 if summary.ttft else None,
    "TBT, p99, s": lambda summary: summary.tbt.p99 if summary.tbt else None,
    "output tokens/s": lambda summary: summary.token_throughput,
}
RATES: dict[str, Pick] = {
    "requests/s": lambda summary: summary.request_throughput,
    "output tokens/s": lambda summary: summary.token_throughput,
    "seconds of video/s": lambda summary: summary.video_throughput,
}


class Figures(msgspec.Struct):
    """A run as figures.json has it: all its requests, and each kind of them."""

    name: str
    arrivals: str
    all: Summary
    kinds: dict[str, Summary]


def draw_saved(saved: Path) -> list[Path]:
    """Draw the pictures that make sense of a figures.json beside it; return their paths."""
    runs = msgspec.json.decode(saved.read_bytes(), type=list[Figures])
    made = {"over-rate": draw_over_rate, "stages": draw_stages, "rates": draw_rates}
    paths = {saved.with_name(f"{name}.png"): draw for name, draw in made.items()}
    return [path for path, draw in paths.items() if draw(path, runs)]


def draw_over_rate(path: Path, runs: Sequence[Figures]) -> bool:
    """Draw attainment, latencies and throughput over the rate of requests, a line a server; tell if there are rates."""
    if len({run.arrivals for run in runs}) < 2:
        return False
    figure, axes = plotting().subplots(1, len(OVER_RATE), figsize=(15, 3.6))
    for axis, (label, pick) in zip(axes, OVER_RATE.items(), strict=True):
        for name, colour in coloured(runs).items():
            points = sorted(medians([run for run in runs if run.name == name], pick))
            axis.plot([rate for rate, _ in points], [value for _, value in points], "o-", color=colour)
        axis.set_title(label, loc="left", fontsize=9)
        axis.set_xlabel("requests/s offered", fontsize=8)
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=0)
    save(figure, path, coloured(runs))
    return True


def medians(runs: Sequence[Figures], pick: Pick) -> Iterator[tuple[float, float]]:
    """Yield the rate and the figure of each process of arrivals, medians of the rounds."""
    for arrivals in dict.fromkeys(run.arrivals for run in runs):
        rounds = [run.all for run in runs if run.arrivals == arrivals]
        points = [(summary.offered, pick(summary)) for summary in rounds]
        known = [(rate, value) for rate, value in points if rate is not None and value is not None]
        if known:
            yield median(rate for rate, _ in known), median(value for _, value in known)


def draw_stages(path: Path, runs: Sequence[Figures]) -> bool:
    """Draw the median TTFT of each kind of request, a bar a server, divided by its stages if the server tells of them.

    Stages that overlap take less time than their sum: what is drawn are their shares. Tell if anything was traced.
    """
    if not any(run.all.phases for run in runs):
        return False
    names, kinds = list(coloured(runs)), sorted({kind for run in runs for kind in run.kinds})
    figure, axes = plotting().subplots(1, len(kinds), figsize=(2 + 2.6 * len(kinds), 4), squeeze=False)
    for axis, kind in zip(axes.ravel(), kinds, strict=True):
        for place, name in enumerate(names):
            draw_bar(axis, place, [run.kinds[kind] for run in runs if run.name == name and kind in run.kinds])
        axis.set_xticks(range(len(names)), names, fontsize=6, rotation=30, ha="right")
        axis.set_title(kind, loc="left", fontsize=9)
    axes[0, 0].set_ylabel("time to first token, s", fontsize=8)
    save(figure, path, {**{str(stage): colour for stage, colour in STAGES.items()}, **REST})
    return True


def draw_bar(axis: Any, place: int, runs: Sequence[Summary]) -> None:
    """Draw the median TTFT (that of the median run), and on it what each stage had of it."""
    ttfts = [run.ttft.p50 for run in runs if run.ttft]
    if not ttfts:
        return
    ttft = median(ttfts)
    seconds = [median(run.phases[phase].median if phase in run.phases else 0.0 for run in runs) for phase in STAGES]
    scale = min(1.0, ttft / total) if (total := sum(seconds)) else 0.0
    axis.bar(place, ttft, color=list(REST.values()), edgecolor=EDGE)
    bottoms = [scale * sum(seconds[:number]) for number in range(len(seconds))]
    axis.bar([place] * len(seconds), [scale * s for s in seconds], bottom=bottoms, color=list(STAGES.values()))


def draw_rates(path: Path, runs: Sequence[Figures]) -> bool:
    """Draw what is done a second, a bar a server, where users waited for their answers; tell if they did."""
    closed = [run for run in runs if run.arrivals.startswith("closed:")]
    if not closed:
        return False
    figure, axes = plotting().subplots(1, len(RATES), figsize=(11, 3.4))
    for axis, (label, pick) in zip(axes, RATES.items(), strict=True):
        for place, (name, colour) in enumerate(coloured(closed).items()):
            values = [pick(run.all) or 0.0 for run in closed if run.name == name]
            middle = median(values)
            axis.bar(place, middle, yerr=[[middle - min(values)], [max(values) - middle]], color=colour)
        axis.set_xticks([])
        axis.set_title(label, loc="left", fontsize=9)
    save(figure, path, coloured(closed))
    return True


def coloured(runs: Sequence[Figures]) -> dict[str, str]:
    """Return the servers' names, in their order, each with its colour."""
    return dict(zip(dict.fromkeys(run.name for run in runs), itertools.cycle(LINES), strict=False))


def plotting() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, path: Path, legend: Mapping[str, str]) -> None:
    from matplotlib.patches import Patch

    patches = [Patch(facecolor=colour, edgecolor=EDGE, label=label) for label, colour in legend.items()]
    figure.tight_layout(rect=(0, 0.14, 1, 1))
    figure.legend(handles=patches, loc="lower center", ncols=min(4, len(patches)), fontsize=7, frameon=False)
    figure.savefig(path, dpi=120)
