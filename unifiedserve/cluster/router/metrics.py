"""Export Prometheus metrics of one router."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from unifiedserve.cluster.router.bodies import Bodies
from unifiedserve.cluster.router.nodes import Nodes

_PREFIX = "unifiedserve:router_"
_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0)


class RouterMetrics:
    """Count what requests do. The state of nodes is read at each scrape."""

    def __init__(self, nodes: Callable[[], Nodes], bodies: Bodies) -> None:
        """Read nodes from `nodes`, which returns what is known of them, while the router runs."""
        self.registry = CollectorRegistry()
        self.answers = self._counter("requests_total", "Answers that have begun", "node", "code")
        self.refusals = self._counter("refusals_total", "Requests that a node had no room for", "node")
        self.breaks = self._counter("breaks_total", "Requests and answers that a node broke off", "node")
        self.failures = Counter(
            _PREFIX + "failures_total",
            "Requests that no node has taken, or gone on with",
            registry=self.registry,
        )
        self.time_to_answer = Histogram(
            _PREFIX + "time_to_answer_seconds",
            "Arrival of a request to the beginning of its answer",
            buckets=_LATENCY,
            registry=self.registry,
        )
        self.in_flight = Gauge(_PREFIX + "requests_in_flight", "Requests that are routed", registry=self.registry)
        self.registry.register(_Known(nodes, bodies))

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(_PREFIX + name, help, labels, registry=self.registry)


class _Known(Collector):
    def __init__(self, nodes: Callable[[], Nodes], bodies: Bodies) -> None:
        self._nodes = nodes
        self._bodies = bodies

    def describe(self) -> list[Metric]:
        return []  # there are no nodes before the router runs

    def collect(self) -> Iterator[Metric]:
        takes = _gauge("node_takes_requests", "Whether a node gets requests: 1 or 0", "pool", "node")
        silent = _gauge("node_silent_seconds", "Time since a node has told of its load", "node")
        wait = _gauge("node_wait_seconds", "Time that a request would wait at a node, as it has told", "node")
        requests = _gauge("node_requests_in_flight", "Requests in a node, of all routers, as it has told", "node")
        for node in self._nodes().each():
            name = node.member.name
            takes.add_metric([node.member.pool, name], node.takes_requests)
            silent.add_metric([name], node.silent_seconds)
            if node.report:
                wait.add_metric([name], node.report.load.wait)
                requests.add_metric([name], node.report.load.in_flight)
        waiting = _gauge("requests_waiting", "Requests that no node can take", value=self._nodes().waiting)
        held = _gauge("held_bytes", "Bodies of requests whose answers have not ended", value=self._bodies.bytes)
        yield from (takes, silent, wait, requests, waiting, held)


def _gauge(name: str, help: str, *labels: str, value: float | None = None) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, help, labels=labels or None, value=value)
