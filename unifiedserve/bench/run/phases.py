"""Where a request's time went, from the server's own trace (Trace Event Format)."""

from collections import defaultdict
from collections.abc import Iterable

import httpx
import msgspec

from unifiedserve.bench.client.dialects import Dialect
from unifiedserve.bench.records import Phase, Record

_QUEUE = 0  # the track of a stage on which requests wait for it
_WORK: dict[str, Phase] = {
    "fetch": "fetch",
    "analyse": "analyse",
    "vision": "vision",
    "encode": "encode",
    "prefill": "prefill",
    "decode": "decode",
}
_MICROSECOND = 1e-6

Interval = tuple[float, float]


class _Requests(msgspec.Struct):
    requests: list[str] = []


class Event(msgspec.Struct):
    """A piece of a stage's work (`cat`), or time in its queue (`tid` 0), in microseconds."""

    ph: str
    cat: str = ""
    tid: int = 0
    ts: float = 0.0
    dur: float = 0.0
    args: _Requests = msgspec.field(default_factory=_Requests)


class _Trace(msgspec.Struct):
    traceEvents: list[Event]  # noqa: N815


async def add_phases(http: httpx.AsyncClient, dialect: Dialect, records: Iterable[Record]) -> None:
    """Give the records their phases, as far as the server has a trace that goes back to them."""
    if not dialect.trace:
        return
    try:
        response = await http.get(dialect.trace.lstrip("/"))
        events = msgspec.json.decode(response.content, type=_Trace).traceEvents
    except (httpx.HTTPError, msgspec.DecodeError):
        return
    found = phases_by_request(events)
    for record in records:
        record.phases = found.get(record.answer, {})


def phases_by_request(events: Iterable[Event]) -> dict[str, dict[Phase, float]]:
    """Return the seconds of each phase of each request that the trace knows from its prefill on.

    A phase takes as long as there was work of it for the request, however many pieces of that overlap; so overlapping
    phases together take longer than the request. `queue` is waiting for vision, encode or prefill; `handoff` the time
    from the prompt's end to the first step of decode.
    """
    spans: dict[str, dict[Phase, list[Interval]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        phase = _phase(event)
        if phase:
            for request in event.args.requests:
                spans[request][phase].append((event.ts, event.ts + event.dur))
    return {request: _seconds(of_request) for request, of_request in spans.items() if "prefill" in of_request}


def _phase(event: Event) -> Phase | None:
    if event.ph != "X":
        return None
    if event.tid == _QUEUE:
        return None if event.cat == "decode" else "queue"
    return _WORK.get(event.cat)


def _seconds(spans: dict[Phase, list[Interval]]) -> dict[Phase, float]:
    found: dict[Phase, float] = {phase: _covered(intervals) * _MICROSECOND for phase, intervals in spans.items()}
    if "decode" in spans:
        start = min(start for start, _ in spans["decode"])
        prefilled = [end for begun, end in spans["prefill"] if begun < start]
        if prefilled:
            found["handoff"] = max(0.0, start - max(prefilled)) * _MICROSECOND
    return found


def _covered(intervals: Iterable[Interval]) -> float:
    """Return the length of a union of intervals."""
    covered, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered
