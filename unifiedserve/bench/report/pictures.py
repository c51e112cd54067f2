"""Draw the pictures of a page, each with what is to be seen. Imports matplotlib."""

from collections.abc import Iterator, Sequence

from unifiedserve.bench.metrics.summary import Yardstick, by_kind
from unifiedserve.bench.records import Record
from unifiedserve.bench.report.comparison import Group, readable
from unifiedserve.bench.report.markup import section
from unifiedserve.bench.report.plots.attainment import draw_attainment_over_rate, draw_attainment_over_scale
from unifiedserve.bench.report.plots.distributions import draw_distributions
from unifiedserve.bench.report.plots.progress import draw_progress
from unifiedserve.bench.report.plots.timelines import draw_gantt, draw_timelines

MOST_CURVES = 6  # over each other, so that they can be told apart


def pictures(groups: Sequence[Group], yardstick: Yardstick) -> Iterator[str]:
    """Return a section for each picture, or for why there is none."""
    drawn = readable(groups, MOST_CURVES)
    where = "" if len(drawn) == len(groups) else f" At {drawn[0].arrivals}."
    first = {group.label: group.first.records for group in drawn}
    seen = {group.label: group.seen(yardstick) for group in drawn}
    curves = seen if len(seen) > 1 else by_kind(drawn[0].seen(yardstick))
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


def _of_kinds(curves: dict[str, list[Record]]) -> dict[str, dict[str, list[Record]]]:
    """Return the curves of each kind of request."""
    kinds = sorted({record.kind for records in curves.values() for record in records})
    return {kind: {label: by_kind(records).get(kind, []) for label, records in curves.items()} for kind in kinds}
