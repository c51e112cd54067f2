"""Latencies of answers that came, and of simulated ones, side by side."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rich.console import Console
from rich.table import Table

KINDS = ("text", "image", "video")
FIGURES = ("TTFT mean", "TTFT p50", "TTFT p90", "TBT p50", "TBT p90", "attainment")


@dataclass
class Answer:
    """When a request was due and its tokens came, in seconds after the start."""

    kind: str
    due: float
    tokens: list[float] = field(default_factory=list)

    @property
    def ttft(self) -> float:
        return self.tokens[0] - self.due

    @property
    def gaps(self) -> list[float]:
        return [after - before for before, after in pairwise(self.tokens)]

    def meets(self, ttft: float, tbt: float) -> bool:
        """Tell whether the first token comes in time, and 90 % of the others do."""
        gaps = self.gaps
        return self.ttft <= ttft and sum(gap <= tbt for gap in gaps) >= 0.9 * len(gaps)


def figures(answers: Sequence[Answer], ttft: float, tbt: float) -> dict[str, float]:
    """Return the latencies (seconds) and the share of the requests that meet the targets."""
    ttfts, gaps = [answer.ttft for answer in answers], [gap for answer in answers for gap in answer.gaps]
    met = statistics.mean(answer.meets(ttft, tbt) for answer in answers)
    values = (statistics.mean(ttfts), *_quantiles(ttfts), *_quantiles(gaps), met)
    return dict(zip(FIGURES, values, strict=True))


def _quantiles(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]


def compare(
    console: Console, real: Sequence[Answer], simulated: Sequence[Answer], targets: tuple[float, float]
) -> dict[str, dict[str, float]]:
    """Show the figures of each kind of request; return the ratios of simulated to real ones, by kind and figure."""
    table = Table("", "", *FIGURES, title="Simulated by real")
    ratios = {}
    for kind in ("all", *KINDS):
        both = [[a for a in answers if kind in ("all", a.kind)] for answers in (real, simulated)]
        if not both[0]:
            continue
        of_real, of_simulated = (figures(answers, *targets) for answers in both)
        ratios[kind] = {name: of_simulated[name] / of_real[name] for name in FIGURES if of_real[name]}
        table.add_row(f"{kind}, {len(both[0])}", "real", *(f"{of_real[name]:.3f}" for name in FIGURES))
        table.add_row("", "simulated", *(f"{of_simulated[name]:.3f}" for name in FIGURES))
        shown = (f"{ratios[kind][name]:.2f}" if name in ratios[kind] else "-" for name in FIGURES)
        table.add_row("", "ratio", *shown, end_section=True)
    console.print(table)
    return ratios
