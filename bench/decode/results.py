"""The figures of a run, and what is computed from them."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Figures:
    """Figures of one contestant on one row, a value a round, in seconds and bytes."""

    note: str = ""
    walls: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)
    peak: int | None = None  # memory above that before the first round, which includes what is handed out
    handed_out: int | None = None
    wrong: int | None = None  # frames that are not those asked for; None if nothing was compared
    difference: str | None = None  # patches only: how far from transformers' own
    failure: str | None = None
    slow: bool = False  # left out after the first round

    @property
    def right(self) -> bool:
        return self.failure is None and bool(self.walls) and not self.wrong


@dataclass
class Floors:
    """The floor of one row; a value a round. `packets` must be decoded of `of_packets`; costs are CPU ms a packet."""

    walls: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)
    packets: int = 0
    of_packets: int = 0
    reference_ms: float = 0.0
    other_ms: float = 0.0


@dataclass
class RowResult:
    title: str
    meaning: str
    video: str
    asked: int  # number of frames asked for
    floors: Floors = field(default_factory=Floors)
    figures: dict[str, Figures] = field(default_factory=dict)

    def peers(self) -> dict[str, Figures]:
        return {name: figures for name, figures in self.figures.items() if not is_ours(name)}

    def best_peer(self, beginning: str = "") -> str | None:
        """Return the fastest peer whose frames are all right, of those whose names begin so."""
        peers = self.peers().items()
        right = {name: statistics.median(figures.walls) for name, figures in peers if figures.right}
        right = {name: wall for name, wall in right.items() if name.startswith(beginning)}
        return min(right, key=lambda name: right[name]) if right else None

    def ratios(self, name: str) -> list[float]:
        """Return the peer's time over FlashCodec's, round by round: over 1, FlashCodec is faster."""
        return paired(self.figures[name].walls, self.figures["FlashCodec"].walls)


def is_ours(name: str) -> bool:
    return name.startswith("FlashCodec")


def paired(above: list[float], below: list[float]) -> list[float]:
    return [a / b for a, b in zip(above, below, strict=False)]


def spread(values: list[float], form: Callable[[float], str]) -> str:
    """Format the median, with the lowest and the highest where there are several."""
    if not values:
        return ""
    middle = form(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({form(min(values))}–{form(max(values))})"


def digits(value: float) -> str:
    """Format with three significant digits."""
    return (
        f"{value:.0f}"
        if value >= 100
        else f"{value:.1f}"
        if value >= 10
        else f"{value:.2f}"
        if value >= 0.1
        else f"{value:.4f}"
    )


def joined(new: dict[str, Any], old: dict[str, Any], titles: list[str]) -> dict[str, Any]:
    """Return a new result file with the old one's rows but those of these titles; ValueError if they do not fit."""
    versions = old["versions"] | new["versions"]
    if versions != new["versions"] | old["versions"] or old["machine"]["cpu"] != new["machine"]["cpu"]:
        raise ValueError("the rows there are of another machine or of other versions")
    kept = [row for row in old["rows"] if row and row["title"] not in titles]
    command = f"{old['command']}; {new['command']}"
    return new | {"command": command, "versions": versions, "rows": kept + new["rows"]}


def rows_of(document: dict[str, Any]) -> list[RowResult]:
    """Read the rows of a result file."""
    return [
        RowResult(
            **{
                **row,
                "floors": Floors(**row["floors"]),
                "figures": {name: Figures(**figures) for name, figures in row["figures"].items()},
            }
        )
        for row in document["rows"]
    ]
