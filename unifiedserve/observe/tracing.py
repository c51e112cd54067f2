"""Trace the engine: spans of every stage, as Chrome/Perfetto trace JSON.

Times are seconds of the system-wide monotonic clock, which all processes of a machine share; the trace
counts microseconds from the engine's start, and tells when that was.
"""

import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from unifiedserve.messages.wire import Span
from unifiedserve.observe.otel import Traces
from unifiedserve.placement import Instance, Stage, letters_of

_KEPT_SPANS = 20_000
_ROWS = {stage: row for row, stage in enumerate(Stage)}
_THREADS = 1000  # of an instance in a stage's process, at most
_INTAKE = len(_ROWS)  # the row of what comes before all stages
_ROLES = _INTAKE + 1  # the row of workers that change


class TakenIn(NamedTuple):
    """Record what was done for a request before any stage, between these times: `fetch` its media, `analyse` it."""

    request: str
    name: Literal["fetch", "analyse"]
    start: float
    end: float


class RoleStep(NamedTuple):
    """Record a worker on its way to other stages, between these times.

    It `drain`s as one instance, `start`s as another.
    """

    instance: Instance
    name: Literal["drain", "start"]
    start: float
    end: float


class Timeline:
    """Hold the latest spans of all requests, and the clients' names for them."""

    def __init__(self, origin: float, traces: Traces | None = None) -> None:
        """Count from `origin`, in monotonic seconds, and tell `traces` of all work."""
        self._origin = origin
        self._since_1970 = time.time() - (time.monotonic() - origin)
        self._traces = traces or Traces()
        self._spans: deque[Span] = deque(maxlen=_KEPT_SPANS)
        self._intakes: deque[TakenIn] = deque(maxlen=_KEPT_SPANS)
        self._roles: deque[RoleStep] = deque(maxlen=_KEPT_SPANS)
        self._names: dict[int, str] = {}
        self._order: deque[int] = deque()
        self._hosts: dict[Stage, list[str]] = {stage: [] for stage in Stage}  # that work was seen of

    def name(self, uid: int, request_id: str) -> None:
        """Remember the client's id of a request. There is room for as many as there can be spans."""
        self._traces.attempt(uid, request_id)
        self._names[uid] = request_id
        self._order.append(uid)
        if len(self._order) > _KEPT_SPANS:
            self._names.pop(self._order.popleft(), None)

    def add(self, spans: Iterable[Span]) -> None:
        """Keep these spans, in place of the oldest."""
        ended = list(spans)
        self._spans.extend(ended)
        self._traces.worked(ended)

    def take_in(self, intake: TakenIn) -> None:
        """Keep what was done before the stages, in place of the oldest."""
        self._intakes.append(intake)

    def role(self, step: RoleStep) -> None:
        """Keep a step of a worker's way to other stages, in place of the oldest."""
        self._roles.append(step)

    def of(self, request_id: str) -> list[Span]:
        """Return the spans of one request, by start time."""
        uids = {uid for uid, name in self._names.items() if name == request_id}
        return sorted((s for s in self._spans if uids.intersection(s.requests)), key=lambda s: s.start)

    def chrome_trace(self, request_id: str | None = None) -> dict[str, Any]:
        """Return a trace (Trace Event Format): a process a stage, a thread for its queue and each of its tracks.

        Where several instances host a stage, each has threads of its own. A further process is what comes before all
        stages, and another one the changes of what workers host, if there are any.
        """
        spans = self.of(request_id) if request_id is not None else list(self._spans)
        rows = {**{stage.value: row for stage, row in _ROWS.items()}, "intake": _INTAKE}
        roles = self._role_events() if request_id is None else []
        if roles:
            rows["roles"] = _ROLES
        names = [
            {"ph": "M", "name": "process_name", "pid": row, "tid": 0, "args": {"name": name}}
            for name, row in rows.items()
        ]
        return {
            "traceEvents": names + self._intake_events(request_id) + roles + self.events(spans),
            "displayTimeUnit": "ms",
            "otherData": {"origin": self._since_1970},  # seconds since 1970
        }

    def events(self, spans: Iterable[Span]) -> list[dict[str, Any]]:
        """Return the spans as complete events of that format."""
        return [
            {
                "ph": "X",
                "name": span.name,
                "cat": span.stage.value,
                "pid": _ROWS[span.stage],
                "tid": self._lane(span) + (0 if span.name == "queue" else 1 + span.track),
                "ts": self.microseconds(span.start),
                "dur": round((span.end - span.start) * 1e6, 1),
                "args": {
                    "requests": [self._names.get(uid, str(uid)) for uid in span.requests],
                    **({"instance": span.instance} if span.instance else {}),
                    **({"tokens": span.tokens} if span.tokens else {}),
                    **({"on": span.on} if span.on else {}),
                    **({"bytes": span.bytes} if span.bytes else {}),
                    **({"host_ms": round(span.host * 1e3, 3)} if span.host else {}),
                    **({"drafted": span.drafted, "accepted": span.accepted} if span.drafted else {}),
                },
            }
            for span in spans
        ]

    def _lane(self, span: Span) -> int:
        """Return the first thread of an instance in its stage's process."""
        hosts = self._hosts[span.stage]
        if span.instance not in hosts:
            hosts.append(span.instance)
        return hosts.index(span.instance) * _THREADS

    def _intake_events(self, request_id: str | None) -> list[dict[str, Any]]:
        return [
            {
                "ph": "X",
                "name": name,
                "cat": name,
                "pid": _INTAKE,
                "tid": 1,
                "ts": self.microseconds(start),
                "dur": round((end - start) * 1e6, 1),
                "args": {"requests": [request]},
            }
            for request, name, start, end in self._intakes
            if request_id in (None, request)
        ]

    def _role_events(self) -> list[dict[str, Any]]:
        lanes = {name: lane for lane, name in enumerate(dict.fromkeys(step.instance.name for step in self._roles))}
        return [
            {
                "ph": "X",
                "name": name,
                "cat": "role",
                "pid": _ROLES,
                "tid": lanes[instance.name],
                "ts": self.microseconds(start),
                "dur": round((end - start) * 1e6, 1),
                "args": {"instance": instance.name, "stages": letters_of(instance.stages)},
            }
            for instance, name, start, end in self._roles
        ]

    def microseconds(self, moment: float) -> float:
        """Return a time of the monotonic clock as the trace counts it."""
        return round((moment - self._origin) * 1e6, 1)
