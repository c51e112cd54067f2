"""What faults came to: gaps of streams, seconds until a worker serves again and tokens computed again, by stage."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

import msgspec

from bench.campaign.faults.kinds import AT_FULL_MEMORY, NOTHING
from bench.campaign.faults.trial import TIMEOUT, Seen
from bench.papers.drawing import plotting

FILE = "faults-by-stage"
_DECODE_GAP = 0.5  # seconds, at decode's death
_BESIDE = 1.2  # times an ordinary worst gap, at another one's death
_HUNG_SECONDS = TIMEOUT + 1.0
_LETTERS = {"v": "vision", "e": "encode", "p": "prefill", "d": "decode"}
_STOPPED = "SIGSTOP"
_FROM_OUTSIDE = ("SIGKILL", _STOPPED)  # what a worker was writing is not doubted


class Row(msgspec.Struct):
    """The figures of one kind of worker, or of one kind of fault: seconds, and tokens."""

    name: str
    faults: int
    replaced: int
    gap_p50: float | None
    gap_p99: float | None
    gap_worst: float | None
    back_p50: float | None
    back_p99: float | None
    recomputed: int  # the most of a fault


class Target(msgspec.Struct):
    """What was to be reached, what was, and of how many faults."""

    name: str
    limit: float
    reached: float | None
    faults: int

    @property
    def met(self) -> bool:
        """Whether it is reached."""
        return self.reached is not None and self.reached <= self.limit


class Summary(msgspec.Struct):
    """The figures of all faults, one by one, too."""

    stages: list[Row]
    kinds: list[Row]
    targets: list[Target]
    faults: list[Seen]


def summarise(seen: Sequence[Seen]) -> Summary:
    """Return the figures. A gap counts where streams ran; those of deaths, where one worker alone died."""
    single = [each for each in seen if not each.again]
    deaths = [each for each in single if each.replaced and each.fault not in (_STOPPED, AT_FULL_MEMORY.name)]
    stages = [_row("undisturbed", [each for each in single if each.fault == NOTHING.name])]
    stages += [_row(name, rows) for name, rows in _by(deaths, lambda each: _stages(each.hosts))]
    kinds = [_row(name, rows) for name, rows in _by(seen, lambda each: each.fault)]
    return Summary(stages, kinds, list(_targets(single, deaths)), list(seen))


def _targets(single: Sequence[Seen], deaths: Sequence[Seen]) -> Iterator[Target]:
    ordinary = max(_gaps(each for each in single if each.fault == NOTHING.name), default=0.0)
    decode = [each for each in deaths if "d" in each.hosts]
    beside = [each for each in deaths if "d" not in each.hosts]
    outside = [each for each in single if each.replaced and each.fault in _FROM_OUTSIDE]
    stopped = [each for each in single if each.fault == _STOPPED]
    yield Target("gap of a stream at decode's death, p99, s", _DECODE_GAP, _percentile(_gaps(decode), 99), len(decode))
    yield Target(
        "gap of a stream at another one's death, p99, s; limit: 1.2 × the worst of undisturbed ones",
        round(_BESIDE * ordinary, 3), _percentile(_gaps(beside), 99), len(beside),
    )  # fmt: skip
    yield Target(
        "prompt tokens of streams computed again at SIGKILL and SIGSTOP, at most",
        0, max((each.recomputed for each in outside), default=None), len(outside),
    )  # fmt: skip
    backs = [each.back for each in stopped if each.back is not None]
    yield Target(
        f"seconds until a hung worker serves again, p99 (--worker-timeout {TIMEOUT:g})",
        _HUNG_SECONDS, _percentile(backs, 99), len(backs),
    )  # fmt: skip


def _row(name: str, seen: Sequence[Seen]) -> Row:
    gaps, backs = _gaps(seen), [each.back for each in seen if each.back is not None]
    return Row(
        name=name,
        faults=len(seen),
        replaced=sum(each.replaced for each in seen),
        gap_p50=_percentile(gaps, 50),
        gap_p99=_percentile(gaps, 99),
        gap_worst=max(gaps, default=None),
        back_p50=_percentile(backs, 50),
        back_p99=_percentile(backs, 99),
        recomputed=max((each.recomputed for each in seen), default=0),
    )


def _gaps(seen: Iterable[Seen]) -> list[float]:
    return [each.gap for each in seen if each.gap is not None]


def _by(seen: Iterable[Seen], key: Callable[[Seen], str]) -> list[tuple[str, list[Seen]]]:
    found = defaultdict(list)
    for each in seen:
        found[key(each)].append(each)
    return sorted(found.items())


def _stages(letters: str) -> str:
    return "+".join(_LETTERS[letter] for letter in letters)


def _percentile(values: Sequence[float], percent: int) -> float | None:
    if len(values) < 2:
        return values[0] if values else None
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def write(seen: Sequence[Seen], folder: Path) -> None:
    """Write the figures as JSON, as a page and as a picture."""
    summary = summarise(seen)
    (folder / f"{FILE}.json").write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=1) + b"\n")
    (folder / f"{FILE}.md").write_text(as_markdown(summary))
    draw(folder / f"{FILE}.png", summary.stages)


def as_markdown(summary: Summary) -> str:
    """Return the page."""
    head = "faults | replaced | gap p50 | gap p99 | worst gap | serves again p50 | p99 | tokens again, at most |"
    rule = "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    lines = [
        "# What faults of workers cost",
        "",
        f"{len(summary.faults)} faults, beside two streams and a mix of requests; times in milliseconds. A gap is the "
        "longest of a stream after the fault.",
        "",
        "| target | limit | reached | faults | met |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {' | '.join([each.name, f'{each.limit:g}', _figure(each.reached), str(each.faults), _met(each)])} |"
            for each in summary.targets
        ),
        "",
        f"| the dead worker | {head}",
        rule,
        *map(_line, summary.stages),
        "",
        f"| the fault | {head}",
        rule,
        *map(_line, summary.kinds),
        "",
        f"![gaps at deaths]({FILE}.png)",
        "",
    ]
    return "\n".join(lines)


def _line(row: Row) -> str:
    times = (row.gap_p50, row.gap_p99, row.gap_worst, row.back_p50, row.back_p99)
    cells = [row.name, row.faults, row.replaced, *map(_milliseconds, times), row.recomputed]
    return f"| {' | '.join(map(str, cells))} |"


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.0f}"


def _figure(value: float | None) -> str:
    return "not tried" if value is None else f"{value:.3g}"


def _met(target: Target) -> str:
    if target.reached is None:
        return ""
    return "yes" if target.met else "no"


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw the gaps, median and 99th percentile, a pair of bars for each kind of worker that died."""
    drawn = [row for row in rows if row.gap_p50 is not None]
    figure, axis = plotting().subplots(figsize=(8, 1.2 + 0.5 * len(drawn)))
    bars: list[tuple[str, Callable[[Row], Any], float, str]] = [
        ("p50", lambda row: row.gap_p50, -0.2, "#56B4E9"),
        ("p99", lambda row: row.gap_p99, 0.2, "#0072B2"),
    ]
    for label, pick, shift, colour in bars:
        places = [place + shift for place in range(len(drawn))]
        axis.barh(places, [1000 * pick(row) for row in drawn], height=0.4, color=colour, label=label)
    axis.axvline(1000 * _DECODE_GAP, color="#D55E00", linestyle="--", label="limit at decode's death")
    axis.set_yticks(range(len(drawn)), [f"{row.name} ({row.faults})" for row in drawn])
    axis.invert_yaxis()
    axis.set_xlabel("longest gap of a stream after the fault, ms")
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plotting().close(figure)
