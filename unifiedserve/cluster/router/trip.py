"""Count and trace a request on its way through a router.

It is kept for the router's timeline. With OpenTelemetry a trip is a span, in it one for each node that was asked, and
in that the spans of the node.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from unifiedserve.cluster.router.metrics import RouterMetrics
from unifiedserve.cluster.router.timeline import RouterTimeline, Step

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer


class Trip:
    """Follow the trip of one request, which must `end`."""

    def __init__(
        self,
        metrics: RouterMetrics,
        timeline: RouterTimeline,
        tracer: "Tracer | None",
        path: str,
        headers: Mapping[str, str],
    ) -> None:
        """Begin with a request to a path; its headers may name it, and a trace that it is part of."""
        self._metrics = metrics
        self._timeline = timeline
        self._id = headers.get("x-request-id", "")
        self._steps: list[Step] = []
        self._node, self._node_since = "", 0.0  # which serves it, and since when (seconds since 1970)
        self._tracer = tracer
        self._span = _begin(tracer, path, headers) if tracer else None
        self._asked: Span | None = None  # the node that serves it
        self._began = time.monotonic()
        metrics.in_flight.inc()

    def asks(self, node: str) -> dict[str, str]:
        """Note that a node is asked; return the headers by which its trace is part of the request's."""
        self._leave()
        self._node, self._node_since = node, time.time()
        if self._tracer is None or self._span is None:
            return {}
        self._asked, headers = _ask(self._tracer, self._span, node)
        return headers

    def answered(self, node: str, status: int) -> None:
        """Note that a node's answer has begun: the client has nothing before."""
        self._metrics.answers.labels(node, str(status)).inc()
        self._metrics.time_to_answer.observe(time.monotonic() - self._began)
        if self._span:
            self._span.set_attribute("http.response.status_code", status)

    def refused(self, node: str) -> None:
        """Note that a node has no room."""
        self._metrics.refusals.labels(node).inc()
        self._leave("refused")

    def broke_off(self, node: str) -> None:
        """Note that a node was lost."""
        self._metrics.breaks.labels(node).inc()
        self._leave("broke off")

    def failed(self) -> None:
        """Note that nobody takes the request, or goes on with it."""
        self._metrics.failures.inc()
        if self._span:
            self._span.set_attribute("error.type", "unavailable")

    def end(self) -> None:
        """End it, with its answer or without."""
        self._metrics.in_flight.dec()
        self._leave()
        self._timeline.add(self._id, self._steps)
        if self._span:
            self._span.end()

    def _leave(self, error: str | None = None) -> None:
        """End the step of the node that was asked, and its span."""
        if self._node:
            self._steps.append(Step(self._node, self._node_since, time.time(), error or ""))
            self._node = ""
        if self._asked:
            if error:
                self._asked.set_attribute("error.type", error)
            self._asked.end()
            self._asked = None


def _begin(tracer: "Tracer", path: str, headers: Mapping[str, str]) -> "Span":
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    callers = TraceContextTextMapPropagator().extract(headers)
    return tracer.start_span(f"route {path}", callers, trace.SpanKind.SERVER, {"url.path": path})


def _ask(tracer: "Tracer", span: "Span", node: str) -> "tuple[Span, dict[str, str]]":
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    inside = trace.set_span_in_context(span)
    asked = tracer.start_span(f"ask {node}", inside, trace.SpanKind.CLIENT, {"unifiedserve.node": node})
    headers = dict[str, str]()
    TraceContextTextMapPropagator().inject(headers, trace.set_span_in_context(asked))
    return asked, headers
