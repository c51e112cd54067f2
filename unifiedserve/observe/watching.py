"""Tell all watchers what an engine does."""

import time
from dataclasses import dataclass

from unifiedserve.observe.broadcast import Broadcast
from unifiedserve.observe.live import Live
from unifiedserve.observe.metrics import Metrics
from unifiedserve.observe.otel import Traces, traces_of_environment
from unifiedserve.observe.tracing import Timeline


@dataclass(frozen=True)
class Watching:
    """Hold the metrics, the timeline, the viewers and the traces of one engine."""

    metrics: Metrics
    timeline: Timeline
    broadcast: Broadcast
    traces: Traces

    @classmethod
    def of(cls, metrics: Metrics, live: Live) -> "Watching":
        """Begin a timeline now, and tell it to live viewers."""
        traces = traces_of_environment()
        timeline = Timeline(time.monotonic(), traces)
        return cls(metrics, timeline, Broadcast(live, timeline), traces)
