"""The picture of a soak: memory, open files, pages and latencies over time, with a line where a worker was killed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.papers.drawing import LINES, plotting
from bench.soak.load import Asked
from bench.soak.report import Soak, series
from bench.soak.vitals import Look


def draw(path: Path, soak: Soak) -> None:
    """Draw all that was seen, over minutes."""
    figure, axes = plotting().subplots(6, 1, figsize=(11, 13), sharex=True)
    minutes = [(look.at - soak.began) / 60 for look in soak.looks]
    shown = series(soak.looks)
    _lines(axes[0], minutes, {"all processes": shown["memory, MiB"]}, "memory, MiB")
    _lines(axes[1], minutes, _own(soak.looks), "own memory, MiB")
    _lines(axes[2], minutes, {"all processes": shown["open files"]}, "open files")
    _lines(axes[3], minutes, _pages(soak.looks), "pages in use")
    _points(axes[4], soak, "ttft", "TTFT, s")
    _points(axes[5], soak, "gap", "longest gap\nof an answer, s")
    axes[5].set_xlabel("minutes")
    for axis in axes:
        for kill in soak.kills:
            axis.axvline((kill.at - soak.began) / 60, color="#bbbbbb", linewidth=0.6, zorder=0)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _lines(axis: Any, minutes: Sequence[float], lines: dict[str, list[float]], label: str) -> None:
    for (name, values), colour in zip(lines.items(), [*LINES, *LINES], strict=False):
        axis.plot(minutes, values, color=colour, linewidth=1, label=name)
    axis.set_ylim(bottom=0)
    axis.set_ylabel(label, fontsize=8)
    axis.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _points(axis: Any, soak: Soak, field: str, label: str) -> None:
    for kind, colour in zip(dict.fromkeys(each.kind for each in soak.asked), LINES, strict=False):
        own: list[Asked] = [each for each in soak.asked if each.kind == kind and getattr(each, field) is not None]
        times = [(each.asked - soak.began) / 60 for each in own]
        axis.plot(times, [getattr(each, field) for each in own], ".", markersize=2, color=colour, label=kind)
    axis.set_yscale("log")
    axis.set_ylabel(label, fontsize=8)
    axis.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1, 1), markerscale=4)


def _own(looks: Sequence[Look]) -> dict[str, list[float]]:
    names = dict.fromkeys(each.name for look in looks for each in look.processes.values())
    return {
        name: [sum(each.own for each in look.processes.values() if each.name == name) / 2**20 for look in looks]
        for name in names
    }


def _pages(looks: Sequence[Look]) -> dict[str, list[float]]:
    names = dict.fromkeys(name for look in looks for name in look.pages)
    return {name: [look.pages.get(name, 0.0) for look in looks] for name in names}
