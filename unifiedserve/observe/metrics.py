"""Export Prometheus metrics of one engine, named in the spirit of vLLM's (`vllm:x` is `unifiedserve:x` here)."""

from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_PREFIX = "unifiedserve:"
_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0)
_HOST = (0.00005, 0.0001, 0.0002, 0.0003, 0.0005, 0.001, 0.002, 0.005, 0.01)
_PULL = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 20.0)
_GAP = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 10.0)


class Observed(Protocol):
    """Define the figures that are read at scrape time."""

    def stages(self) -> Mapping[str, tuple[int, int]]: ...
    def worker_requests(self) -> Mapping[tuple[str, str], tuple[int, int]]: ...
    def buffers(self) -> Mapping[tuple[str, str], tuple[int, int]]: ...
    def peaks(self) -> Mapping[tuple[str, str], int]: ...
    def cached(self) -> Mapping[tuple[str, str], int]: ...
    def memory(self) -> Mapping[str, int]: ...
    def hosts(self) -> Mapping[str, int]: ...
    def held(self) -> tuple[float, float] | None: ...
    def silences(self) -> Mapping[str, float]: ...
    @property
    def role_changes(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def page_tokens(self) -> int: ...
    @property
    def target_between_tokens(self) -> float | None: ...


class Metrics:
    """Hold counters and histograms that the engine feeds. Gauges are read from the engine at each scrape."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._ttft = self._histogram("time_to_first_token_seconds", "Arrival to first token", _LATENCY)
        self._gap = self._histogram("inter_token_latency_seconds", "Time between tokens of an answer", _GAP)
        self._host = self._histogram("decode_host_seconds", "Time of the host in a step that a GPU decodes", _HOST)
        self._e2e = self._histogram("e2e_request_latency_seconds", "Arrival to last token", _LATENCY)
        self._stage_time = {
            "queue": self._stage_histogram("request_queue_time_seconds", "Time waiting for a stage"),
            "run": self._stage_histogram("request_stage_time_seconds", "Time being served by a stage"),
        }
        self._worked = Counter(
            _PREFIX + "worker_busy_seconds_total",
            "Time that a worker has spent on a stage's work",
            ["worker", "stage"],
            registry=self.registry,
        )
        self._pulled_bytes = Counter(
            _PREFIX + "pulled_bytes_total",
            "Bytes of pages that a stage has read from another memory",
            ["stage"],
            registry=self.registry,
        )
        pulling = "Time to read a request's pages from another memory"
        self._pull_time = self._stage_histogram("pull_time_seconds", pulling, _PULL)
        self._eager = self._counter(
            "decode_eager_steps_total", "Steps that a GPU decoded without a CUDA graph, because none was recorded"
        )
        self._arrived = self._counter("requests_total", "Requests received")
        self._prompt_tokens = self._counter("prompt_tokens_total", "Prompt tokens of finished requests")
        self._generated_tokens = self._counter("generation_tokens_total", "Tokens generated")
        self._preempted = self._counter("num_preemptions_total", "Sequences preempted for want of KV pages")
        self._restarted = self._counter("worker_restarts_total", "Workers that died and were replaced")
        self._hung = self._counter("worker_hangs_total", "Workers that showed no sign of life and were replaced")
        self._lookups = {
            "kv": (
                self._counter("prefix_cache_queries_total", "Tokens that were looked for in the prefix cache"),
                self._counter("prefix_cache_hits_total", "Tokens that were found in the prefix cache"),
            ),
            "visual": (
                self._counter("mm_cache_queries_total", "Visual tokens that were looked for in the visual cache"),
                self._counter("mm_cache_hits_total", "Visual tokens that were found in the visual cache"),
            ),
        }
        self._drafted = self._counter("spec_decode_num_draft_tokens_total", "Tokens that were drafted")
        self._accepted = self._counter("spec_decode_num_accepted_tokens_total", "Drafted tokens that came true")
        self._aborted = self._counter("num_aborted_requests_total", "Requests whose client went away")
        self._finished = Counter(
            _PREFIX + "request_success_total",
            "Requests answered in full",
            ["finished_reason"],
            registry=self.registry,
        )

    def bind(self, engine: Observed) -> None:
        """Report the running/waiting requests and the page use of `engine` from now on. Call once."""
        self.registry.register(_Gauges(engine))

    def request_arrived(self) -> None:
        """Count a request."""
        self._arrived.inc()

    def first_token(self, ttft_s: float) -> None:
        """Note the seconds from a request's arrival to an answer's first token."""
        self._ttft.observe(ttft_s)

    def token_gap(self, seconds: float) -> None:
        """Note the time between two tokens of an answer."""
        self._gap.observe(seconds)

    def decode_host(self, seconds: float) -> None:
        """Note the host's seconds on a step of decode. A device did the step meanwhile."""
        self._host.observe(seconds)

    def decoded_eagerly(self) -> None:
        """Count a step of decode for which a device had no recorded one."""
        self._eager.inc()

    def request_finished(self, reason: str, e2e_s: float, prompt_tokens: int, generated_tokens: int) -> None:
        """Count an answer that is complete, `e2e_s` seconds after its request's arrival."""
        self._finished.labels(reason).inc()
        self._e2e.observe(e2e_s)
        self._prompt_tokens.inc(prompt_tokens)
        self._generated_tokens.inc(generated_tokens)

    def stage_time(self, stage: str, kind: Literal["queue", "run"], seconds: float) -> None:
        """Note the time that requests waited for a stage, or were served by it."""
        self._stage_time[kind].labels(stage).observe(seconds)

    def worked(self, worker: str, stage: str, seconds: float) -> None:
        """Count the time that a worker has spent on a stage's work."""
        self._worked.labels(worker, stage).inc(seconds)

    def pulled(self, stage: str, size: int, seconds: float) -> None:
        """Count the bytes that a stage read from another memory, and their time."""
        self._pulled_bytes.labels(stage).inc(size)
        self._pull_time.labels(stage).observe(seconds)

    def looked_up(self, buffer: Literal["kv", "visual"], tokens: int, hits: int) -> None:
        """Count the `tokens` of a request, of which `hits` were found in the cache."""
        queried, found = self._lookups[buffer]
        queried.inc(tokens)
        found.inc(hits)

    def speculated(self, drafted: int, accepted: int) -> None:
        """Count the tokens that a step of decode tried, and the accepted ones."""
        self._drafted.inc(drafted)
        self._accepted.inc(accepted)

    def workers_restarted(self) -> None:
        """Count a restart of the workers."""
        self._restarted.inc()

    def worker_hung(self) -> None:
        """Count a worker that showed no sign of life."""
        self._hung.inc()

    def preempted(self) -> None:
        """Count a preemption."""
        self._preempted.inc()

    def aborted(self) -> None:
        """Count a request whose client went away."""
        self._aborted.inc()

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, help: str) -> Counter:
        return Counter(_PREFIX + name, help, registry=self.registry)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(_PREFIX + name, help, buckets=buckets, registry=self.registry)

    def _stage_histogram(self, name: str, help: str, buckets: tuple[float, ...] = _LATENCY) -> Histogram:
        return Histogram(_PREFIX + name, help, ["stage"], buckets=buckets, registry=self.registry)


class _Gauges(Collector):
    def __init__(self, engine: Observed) -> None:
        self._engine = engine

    def describe(self) -> list[GaugeMetricFamily]:
        return []  # registering must not scrape an engine that has not started

    def collect(self) -> Iterator[Metric]:
        running = _gauge("num_requests_running", "Requests being served", "stage")
        waiting = _gauge("num_requests_waiting", "Requests waiting", "stage")
        for stage, (now_running, now_waiting) in self._engine.stages().items():
            running.add_metric([str(stage)], now_running)
            waiting.add_metric([str(stage)], now_waiting)
        serving = _gauge("worker_requests_running", "Requests being served by a worker", "worker", "stage")
        queued = _gauge("worker_requests_waiting", "Requests waiting for a worker", "worker", "stage")
        for labels, (now_running, now_waiting) in self._engine.worker_requests().items():
            serving.add_metric(labels, now_running)
            queued.add_metric(labels, now_waiting)
        ratio = _gauge("buffer_usage_ratio", "Used share of a buffer's pages", "memory", "buffer")
        used = _gauge("buffer_used_pages", "Pages in use", "memory", "buffer")
        total = _gauge("buffer_total_pages", "Pages in all", "memory", "buffer")
        for key, (now_used, pages) in self._engine.buffers().items():
            ratio.add_metric(key, now_used / pages if pages else 0.0)
            used.add_metric(key, now_used)
            total.add_metric(key, pages)
        peak = _gauge("buffer_peak_pages", "Most pages in use at once since the workers started", "memory", "buffer")
        for key, pages in self._engine.peaks().items():
            peak.add_metric(key, pages)
        cached = _gauge("buffer_cached_pages", "Free pages with what later requests may reuse", "memory", "buffer")
        for key, pages in self._engine.cached().items():
            cached.add_metric(key, pages)
        memory = _gauge("memory_bytes", "Memory of the device that computes, by use", "use")
        for use, size in self._engine.memory().items():
            memory.add_metric([use], size)
        hosts = _gauge("workers", "Workers that host a stage", "stage")
        for stage, count in self._engine.hosts().items():
            hosts.add_metric([stage], count)
        silent = _gauge("worker_silent_seconds", "Time since a worker's last sign of life", "worker")
        for worker, seconds in self._engine.silences().items():
            silent.add_metric([worker], seconds)
        flight = _gauge("num_requests_in_flight", "Requests in the engine", value=self._engine.in_flight)
        turn = _gauge("num_requests_queued", "Requests that wait for their first token", value=self._engine.waiting)
        yield from (running, waiting, serving, queued, ratio, used, total, peak, cached, memory, hosts, silent)
        yield from (flight, turn, self._cache_config())
        yield CounterMetricFamily(
            _PREFIX + "role_changes_total", "Times that a worker began to host other stages", self._engine.role_changes
        )
        if (target := self._engine.target_between_tokens) is not None:
            yield _gauge("slo_tbt_seconds", "Target time between tokens beside heavy work", value=target)
        if (held := self._engine.held()) is not None:
            share, tbt = held
            yield _gauge("heavy_share_ratio", "Share of its budgets that heavy work gets beside streams", value=share)
            yield _gauge("tbt_p99_seconds", "Time between tokens beside heavy work for which that is so", value=tbt)

    def _cache_config(self) -> GaugeMetricFamily:
        """Return the KV cache's shape as labels. Routers of the Gateway API's inference extension read them."""
        pages = sum(pages for (_, buffer), (_, pages) in self._engine.buffers().items() if buffer == "kv")
        info = _gauge("cache_config_info", "The KV cache: tokens of a page, and pages", "block_size", "num_gpu_blocks")
        info.add_metric([f"{self._engine.page_tokens}", f"{pages}"], 1)
        return info


def _gauge(name: str, help: str, *labels: str, value: float | None = None) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, help, labels=labels or None, value=value)
