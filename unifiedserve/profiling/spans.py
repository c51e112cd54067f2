"""Read a server's timeline from its `/debug/trace`."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from unifiedserve.placement import Stage


class Span(NamedTuple):
    """Hold a piece of work. It has seconds since the server's start, a number of requests, and any tokens and bytes."""

    stage: Stage
    name: str
    start: float
    end: float
    requests: int
    tokens: int = 0
    bytes: int = 0

    @property
    def seconds(self) -> float:
        """Return how long it took."""
        return self.end - self.start


def spans_of(trace: dict[str, Any]) -> list[Span]:
    """Return the stages' spans of a Chrome trace, by the time."""
    stages = set(Stage)
    spans = [_span(event) for event in trace["traceEvents"] if event["ph"] == "X" and event["cat"] in stages]
    return sorted(spans, key=lambda span: span.start)


def named(spans: Iterable[Span], stage: Stage, name: str = "") -> list[Span]:
    """Return the spans of a stage's work of that name; without one, of what it is there for."""
    wanted = name or {Stage.VISION: "decode"}.get(stage, stage.value)
    return [span for span in spans if (span.stage, span.name) == (stage, wanted)]


def busy(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """Return when at least one of these spans was under way: times from and to, in order."""
    found: list[tuple[float, float]] = []
    for span in sorted(spans, key=lambda span: span.start):
        if found and span.start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], span.end))
        else:
            found.append((span.start, span.end))
    return found


def overlap(span: Span, times: Sequence[tuple[float, float]]) -> float:
    """Return the part of a span that lies within these times, 0 to 1."""
    shared = sum(max(0.0, min(span.end, end) - max(span.start, start)) for start, end in times)
    return shared / span.seconds if span.seconds else 0.0


def intervals(spans: Iterable[Span]) -> list[tuple[Span, float]]:
    """Return each span that is followed by an equal one, with the seconds between starts.

    Equal ones are for as many requests.
    """
    ordered = sorted(spans, key=lambda span: span.start)
    return [(span, next.start - span.start) for span, next in pairwise(ordered) if span.requests == next.requests]


def _span(event: dict[str, Any]) -> Span:
    args = event["args"]
    start, end = event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6
    tokens, size = args.get("tokens", 0), args.get("bytes", 0)
    return Span(Stage(event["cat"]), event["name"], start, end, len(args["requests"]), tokens, size)
