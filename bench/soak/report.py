"""What a soak came to: what was lost or wrong, what grew, and how long streams stood still when workers died."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from statistics import median, quantiles
from typing import Any

import msgspec

from bench.soak.kills import Kill
from bench.soak.load import Asked, errors
from bench.soak.vitals import Look

_MOST_DRIFT = 0.02
_WARM_UP = 1 / 6  # of the time, which does not count: buffers and caches fill
_AFTER_KILL = 15.0  # seconds in which a gap is one of a kill
_KINDS = {"memory, MiB": 2**20, "memory of the API's process, MiB": 2**20, "open files": 1, "shared memory, MiB": 2**20}


class Soak(msgspec.Struct):
    """All that a soak has seen. Times are seconds of the monotonic clock, from `began` to `ended`."""

    command: str
    machine: dict[str, Any]
    began: float
    ended: float
    asked: list[Asked]
    kills: list[Kill]
    looks: list[Look]
    left: dict[str, float]  # pages in use at the end, by buffer
    remains: list[str]  # processes and segments that the daemon left behind


def series(looks: Sequence[Look]) -> dict[str, list[float]]:
    """Return the figures over time that must not grow, by their names."""
    measures: dict[str, Callable[[Look], float]] = {
        "memory, MiB": lambda look: sum(each.own for each in look.processes.values()),
        "memory of the API's process, MiB": lambda look: next(
            (each.own for each in look.processes.values() if each.name == "us:api"), 0
        ),
        "open files": lambda look: sum(each.descriptors for each in look.processes.values()),
        "shared memory, MiB": lambda look: look.shared,
    }
    return {name: [measure(look) / _KINDS[name] for look in looks] for name, measure in measures.items()}


def drifts(soak: Soak) -> dict[str, float]:
    """Return by which part each figure has grown: the median of the last third by that of the first, once warm."""
    whole = soak.ended - soak.began
    warm = [look for look in soak.looks if look.at > soak.began + _WARM_UP * whole]
    third = len(warm) // 3
    if not third:
        return {}
    return {
        name: median(values[-third:]) / median(values[:third]) - 1 if median(values[:third]) else 0.0
        for name, values in series(warm).items()
    }


def gaps_at_kills(soak: Soak) -> dict[str, list[float]]:
    """Return the longest gap of an answer at each kill, by worker and signal."""
    found = defaultdict(list)
    for kill in soak.kills:
        until = kill.at + max(_AFTER_KILL, kill.back or 0.0)
        gaps = [each.gap for each in soak.asked if each.gap and each.at and kill.at < each.at < until]
        found[f"{kill.worker}, {kill.signal}"].append(max(gaps, default=0.0))
    return dict(found)


def figures(soak: Soak) -> dict[str, Any]:
    """Return the figures of the report."""
    answers = Counter(each.status.partition(":")[0] for each in soak.asked)
    ttfts = {
        kind: quantiles([each.ttft for each in soak.asked if each.kind == kind and each.ttft] or [0, 0], n=100)
        for kind in dict.fromkeys(each.kind for each in soak.asked)
    }
    return {
        "hours": (soak.ended - soak.began) / 3600,
        "requests": len(soak.asked),
        "answers": dict(answers),
        "kills": len(soak.kills),
        "never replaced": [kill.worker for kill in soak.kills if kill.back is None],
        "seconds until all serve again": {
            name: max(kill.back or 0.0 for kill in soak.kills if kill.signal == name)
            for name in dict.fromkeys(kill.signal for kill in soak.kills)
        },
        "longest gap at a kill, s": {name: max(gaps) for name, gaps in sorted(gaps_at_kills(soak).items())},
        "drift": drifts(soak),
        "TTFT, s": {kind: {"p50": parts[49], "p99": parts[98]} for kind, parts in ttfts.items()},
        "pages left": soak.left,
        "left behind": soak.remains,
    }


def findings(soak: Soak) -> list[str]:
    """Return what should not have been."""
    found = [f"{each.kind}: {each.status}" for each in errors(soak.asked)]
    found += [f"{kill.worker} did not come back after {kill.signal}" for kill in soak.kills if kill.back is None]
    found += [f"{name} grew by {drift:.1%}" for name, drift in drifts(soak).items() if drift > _MOST_DRIFT]
    found += [f"{pages:g} pages of {buffer} are in use at the end" for buffer, pages in soak.left.items()]
    return found + [f"left behind: {each}" for each in soak.remains]


def as_markdown(soak: Soak) -> str:
    """Return the report."""
    known, found = figures(soak), findings(soak)
    grown = ", ".join(f"{name} {drift:+.1%}" for name, drift in known["drift"].items())
    answers = ", ".join(f"{count:,} {name}" for name, count in known["answers"].items())
    lines = [
        f"# {known['hours']:.1f} hours, {known['kills']} workers killed",
        "",
        f"    {soak.command}",
        "",
        f"{known['requests']:,} requests: {answers}.",
        "",
        f"From the first third to the last, once warm: {grown}.",
        "",
        "| worker, signal | longest gap of an answer, s |",
        "| --- | ---: |",
        *[f"| {name} | {gap:.2f} |" for name, gap in known["longest gap at a kill, s"].items()],
        "",
        "![memory, open files, pages and latencies over time](soak.png)",
        "",
        *([f"{len(found)} findings:", "", *[f"- {each}" for each in found[:50]]] if found else ["No finding."]),
        "",
    ]
    return "\n".join(lines)
