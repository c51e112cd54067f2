"""Read requests' phases and first tokens from the server's own trace (Trace Event Format)."""

from collections import defaultdict
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

import httpx
import msgspec

from unifiedserve.bench.client.connection import ASIDE
from unifiedserve.bench.client.dialects import Dialect
from unifiedserve.bench.records import Phase, Record
from unifiedserve.errors import NO_JSON

_QUEUE = "queue"  # the name of the spans in which requests wait for a stage
_PULL = "pull"  # the name of the spans in which pages come from another memory
_WORK: dict[str, Phase] = {
    "fetch": "fetch",
    "analyse": "analyse",
    "vision": "vision",
    "encode": "encode",
    "prefill": "prefill",
    "decode": "decode",
}
_PULLS: dict[str, Phase] = {"prefill": "ep-pull", "decode": "pd-pull"}
_QUEUES: dict[str, Phase] = {"vision": "queue", "encode": "queue", "prefill": "prefill-queue"}
_MICROSECOND = 1e-6

Interval = tuple[float, float]


class _Requests(msgspec.Struct):
    requests: list[str] = []


class Event(msgspec.Struct):
    """Hold a piece of a stage's work (`cat`), queueing or pull (`name`), in microseconds."""

    ph: str
    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: _Requests = msgspec.field(default_factory=_Requests)


class _Trace(msgspec.Struct):
    traceEvents: list[Event]  # noqa: N815


class Traced(NamedTuple):
    """Hold seconds of a request's phases, and of its first token after arrival.

    The latter needs a trace that goes back to that.
    """

    phases: dict[Phase, float]
    ttft: float | None


async def add_trace(http: httpx.AsyncClient, dialect: Dialect, records: Iterable[Record]) -> None:
    """Give the records what the server's trace tells. Some may be older than the trace."""
    if not dialect.trace:
        return
    try:
        response = await http.get(dialect.trace.lstrip("/"), timeout=ASIDE)
        events = msgspec.json.decode(response.content, type=_Trace).traceEvents
    except (httpx.HTTPError, *NO_JSON):
        return
    found = traced(events)
    for record in records:
        if record.answer in found:
            record.phases, record.ttft_there = found[record.answer]


def traced(events: Iterable[Event]) -> dict[str, Traced]:
    """Return what the trace tells of each request that it knows from its prefill on.

    A phase takes as long as there was work of it for the request, however many pieces of that overlap; so overlapping
    phases together take longer than the request. `queue` is waiting for vision or encode; `ep-pull` and `pd-pull` are
    what prefill and decode read from another memory; `handoff` is the rest of the time from the prompt's end to the
    first step of decode. So they are those of HydraInfer's figure 13.
    """
    spans: dict[str, dict[Phase, list[Interval]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        phase = _phase(event)
        if phase:
            for request in event.args.requests:
                spans[request][phase].append((event.ts, event.ts + event.dur))
    return {
        request: Traced(_seconds(of_request), _ttft(of_request))
        for request, of_request in spans.items()
        if "prefill" in of_request
    }


def _phase(event: Event) -> Phase | None:
    if event.ph != "X":
        return None
    if event.name == _QUEUE:
        return _QUEUES.get(event.cat)
    return (_PULLS if event.name == _PULL else _WORK).get(event.cat)


def _seconds(spans: dict[Phase, list[Interval]]) -> dict[Phase, float]:
    found: dict[Phase, float] = {phase: _covered(intervals) * _MICROSECOND for phase, intervals in spans.items()}
    handoff = _decoding(spans) - _prefilled(spans)
    if handoff < inf:
        found["handoff"] = max(0.0, handoff * _MICROSECOND - found.get("pd-pull", 0.0))
    return found


def _ttft(spans: dict[Phase, list[Interval]]) -> float | None:
    arrived = [start for phase in ("fetch", "analyse") for start, _ in spans.get(phase, [])]
    end = _prefilled(spans)
    return (end - min(arrived)) * _MICROSECOND if arrived and end > -inf else None


def _decoding(spans: dict[Phase, list[Interval]]) -> float:
    """Return when decode began; infinity if it did not."""
    return min((start for start, _ in spans.get("decode", [])), default=inf)


def _prefilled(spans: dict[Phase, list[Interval]]) -> float:
    """Return when the prompt was at its end, for the first time; minus infinity if the trace does not know."""
    start = _decoding(spans)
    return max((end for begun, end in spans["prefill"] if begun < start), default=-inf)


def _covered(intervals: Iterable[Interval]) -> float:
    """Return the length of a union of intervals."""
    covered, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered
