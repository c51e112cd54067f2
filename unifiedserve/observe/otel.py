"""Send requests as OpenTelemetry traces to OTEL_EXPORTER_OTLP_ENDPOINT. Without it, nothing is done.

A trace has a span for the request, by the conventions for generative AI, and in it one for each stage that worked
for it. It tells when and how much, never what: no prompt, no answer, no key.
"""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from unifiedserve import __version__
from unifiedserve.errors import RequestError
from unifiedserve.messages.api import Delta, GenerateRequest
from unifiedserve.messages.wire import Span
from unifiedserve.placement import Stage

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer
    from opentelemetry.util.types import AttributeValue

_log = logging.getLogger(__name__)

#: The trace that a client's request is part of: its headers `traceparent` and `tracestate`, as far as there are any.
CALLERS_TRACE: ContextVar[Mapping[str, str]] = ContextVar("callers_trace")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_NAME = "unifiedserve"


@dataclass
class _Work:
    """Record a stage's work for a request.

    It has a beginning and an end (monotonic seconds), so many steps, and a wait before it.
    """

    start: float = float("inf")
    end: float = float("-inf")
    steps: int = 0
    queued: float = 0.0

    def add(self, span: Span) -> None:
        if span.name == "queue":
            self.queued += span.end - span.start
            return
        self.start, self.end = min(self.start, span.start), max(self.end, span.end)
        self.steps += 1


class Trace:
    """Trace a request on its way. Belongs to the engine's event loop."""

    def __init__(self, traces: "Traces", id: str, operation: str, arrival: float, model: str, answers: int) -> None:
        """Begin with a request for so many answers that was taken in at `arrival` (monotonic seconds)."""
        self.id = id
        self.uids: list[int] = []
        self.work: dict[Stage, _Work] = {}
        self.arrival = arrival
        self.first_token: float | None = None
        self.operation = operation
        self.model = model
        self.error: str | None = "aborted" if answers else None  # unless it ends otherwise
        self.caller = CALLERS_TRACE.get({})
        self.prompt_tokens: int | None = None  # known with the first piece
        self.generated: dict[int, int] = {}  # by answer
        self.reasons: dict[int, str] = {}
        self._answers = answers
        self._traces = traces

    def take(self, piece: Delta | RequestError) -> None:
        """Note a piece of an answer, or the error that the request ends with."""
        if isinstance(piece, RequestError):
            self.error = piece.kind.value
            return
        if self.first_token is None and piece.generated_tokens:
            self.first_token = time.monotonic()
        self.prompt_tokens = piece.prompt_tokens
        self.generated[piece.index] = piece.generated_tokens
        if piece.finish_reason:
            self.reasons[piece.index] = piece.finish_reason
            self.error = None if len(self.reasons) == self._answers else self.error

    def end(self) -> None:
        """Send it; no failure of that is the request's."""
        self._traces.end(self)


class Traces:
    """Hold the requests in flight that are traced. Belongs to the engine's event loop, which it never holds up."""

    def __init__(self, tracer: "Tracer | None" = None) -> None:
        """Trace with `tracer`; nothing if there is none."""
        self._tracer = tracer
        self._by_id: dict[str, Trace] = {}
        self._by_uid: dict[int, Trace] = {}

    def begin(self, request: GenerateRequest, arrival: float, model: str) -> Trace:
        """Return the trace of a request, which must be told of its end."""
        operation = "embeddings" if request.embed else "chat" if request.messages else "text_completion"
        return self._begun(Trace(self, request.id, operation, arrival, model, request.sampling.n))

    def begin_encoding(self, id: str, model: str) -> Trace:
        """Return the trace of what another node has encoded for a request. The node may hang up at any time."""
        return self._begun(Trace(self, id, "encode", time.monotonic(), model, 0))

    def _begun(self, trace: Trace) -> Trace:
        if self._tracer is not None:
            self._by_id[trace.id] = trace
        return trace

    def attempt(self, uid: int, request_id: str) -> None:
        """Note under which uid a request goes through the stages: of several with one id, that which began last."""
        if (trace := self._by_id.get(request_id)) is not None:
            trace.uids.append(uid)
            self._by_uid[uid] = trace

    def worked(self, spans: Sequence[Span]) -> None:
        """Note what the stages did."""
        if not self._by_uid:
            return
        for span in spans:
            for uid in set(span.requests):  # a request has its uid there once for each of its answers
                if (trace := self._by_uid.get(uid)) is not None:
                    trace.work.setdefault(span.stage, _Work()).add(span)

    def end(self, trace: Trace) -> None:
        """Send a trace and forget it."""
        if self._tracer is None:
            return
        for uid in trace.uids:
            self._by_uid.pop(uid, None)
        if self._by_id.get(trace.id) is trace:
            del self._by_id[trace.id]
        try:
            _send(self._tracer, trace)
        except Exception:
            _log.exception("a trace is lost")


def traces_of_environment() -> Traces:
    """Return the traces that the environment asks for."""
    return Traces(tracer_of_environment())


def tracer_of_environment() -> "Tracer | None":
    """Return what makes spans, if the environment asks for them."""
    return _tracer() if any(map(os.environ.get, _ENDPOINTS)) else None


@cache
def _tracer() -> "Tracer | None":
    """Return what makes spans and sends them in a thread of its own; None, once with a warning, if that cannot be."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        _log.warning("no traces are sent to OTEL_EXPORTER_OTLP_ENDPOINT: that needs pip install 'unifiedserve[otel]'")
        return None
    try:
        ours = Resource.create({"service.name": _NAME, "service.version": __version__})
        provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()))  # what the user says, wins
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except Exception as error:
        _log.warning("no traces are sent to OTEL_EXPORTER_OTLP_ENDPOINT: %s", error)
        return None
    return provider.get_tracer(_NAME, __version__)


def _send(tracer: "Tracer", trace: Trace) -> None:
    from opentelemetry import trace as api
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    now = time.monotonic()
    origin = time.time_ns() - time.monotonic_ns()  # one for all spans: what comes between two looks would part them
    root = tracer.start_span(
        f"{trace.operation} {trace.model}",
        TraceContextTextMapPropagator().extract(trace.caller),
        api.SpanKind.SERVER,
        _attributes(trace),
        start_time=origin + _nanoseconds(trace.arrival),
    )
    if trace.error is not None:
        root.set_status(api.StatusCode.ERROR)
    inside = api.set_span_in_context(root)
    for stage in Stage:
        if (work := trace.work.get(stage)) is not None and work.steps:
            _send_stage(tracer, inside, stage, work, origin)
    root.end(origin + _nanoseconds(now))


def _send_stage(tracer: "Tracer", inside: "Context", stage: Stage, work: _Work, origin: int) -> None:
    """Send a stage's work, by a monotonic clock that began `origin` nanoseconds after 1970 did."""
    figures = {f"{_NAME}.steps": work.steps, f"{_NAME}.queue_seconds": work.queued}
    start = origin + _nanoseconds(work.start)
    span = tracer.start_span(stage.value, inside, attributes=figures, start_time=start)
    span.end(origin + _nanoseconds(work.end))


def _attributes(trace: Trace) -> "dict[str, AttributeValue]":
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": trace.operation,
        "gen_ai.provider.name": _NAME,
        "gen_ai.request.model": trace.model,
        "gen_ai.response.id": trace.id,
        "gen_ai.usage.output_tokens": sum(trace.generated.values()),
        "gen_ai.response.finish_reasons": [reason for _, reason in sorted(trace.reasons.items())],
    }
    if trace.prompt_tokens is not None:
        attributes["gen_ai.usage.input_tokens"] = trace.prompt_tokens
    if trace.first_token is not None:
        attributes["gen_ai.latency.time_to_first_token"] = trace.first_token - trace.arrival
    if trace.error is not None:
        attributes["error.type"] = trace.error
    return attributes


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
