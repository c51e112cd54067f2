"""View a daemon's metrics, as a whole or of the last moments."""

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from unifiedserve.placement import Stage

_PREFIX = "unifiedserve:"
_BUFFERS = ("patch", "visual", "kv")  # as requests pass through them


class Sample(NamedTuple):
    """Hold the metrics at a time, in seconds since 1970: by name, without the prefix, and the values of the labels."""

    time: float
    values: Mapping[tuple[str, ...], float]

    @classmethod
    def parse(cls, text: str, time: float) -> "Sample":
        """Read Prometheus' text format; raises ValueError for what is none."""
        families = text_string_to_metric_families(text)
        samples = (sample for family in families for sample in family.samples if sample.name.startswith(_PREFIX))
        return cls(time, {(each.name.removeprefix(_PREFIX), *each.labels.values()): each.value for each in samples})

    @property
    def started(self) -> float | None:
        """Return when the daemon began to count."""
        return self.values.get(("requests_created",))

    def one(self, *key: str) -> float:
        return self.values.get(key, 0.0)

    def by_label(self, name: str) -> dict[str, float]:
        return {key[1]: value for key, value in self.values.items() if key[0] == name and len(key) == 2}


class Quantiles(NamedTuple):
    """Hold seconds by the share of measurements below them."""

    p50: float
    p99: float


class Pages(NamedTuple):
    """Count the pages of a buffer. The `cached` ones are free, but hold what may come again."""

    used: int
    total: int
    cached: int
    peak: int


class View(NamedTuple):
    """Hold what is shown. Counts over time are over `seconds` (None: it is not known how long that is)."""

    seconds: float | None
    stages: Mapping[str, tuple[int, int]]  # running, waiting
    buffers: Mapping[str, Pages]
    requests: float  # that came
    answers: float
    tokens: float
    prompt_tokens: float
    aborted: float
    preempted: float
    ttft: Quantiles | None  # None: there were none
    tbt: Quantiles | None
    target: float | None  # seconds between tokens beside heavy work
    held: float | None
    share: float | None
    prefixes: float | None  # share of tokens that the cache had
    visual: float | None
    restarts: float | None  # of workers, ever
    memory: Mapping[str, float]


def view_of(before: Sample | None, now: Sample) -> View:
    """Return what happened between two samples: since the start if there is one only, or a restart between them."""
    if before is None or before.started != now.started:
        before = Sample(now.time if now.started is None else now.started, {})
    since = before

    def grown(*key: str) -> float:
        return max(0.0, now.one(*key) - since.one(*key))

    running, waiting = now.by_label("num_requests_running"), now.by_label("num_requests_waiting")
    memories = sorted({key[2] for key in now.values if key[0] == "buffer_total_pages"})
    return View(
        seconds=now.time - since.time if now.time > since.time else None,
        stages={stage: (int(running[stage]), int(waiting[stage])) for stage in Stage if stage in running},
        buffers={
            f"{name} {memory}" if len(memories) > 1 else name: _pages(now, name, memory)
            for memory in memories
            for name in _BUFFERS
            if ("buffer_total_pages", name, memory) in now.values
        },
        requests=grown("requests_total"),
        answers=sum(grown("request_success_total", reason) for reason in now.by_label("request_success_total")),
        tokens=grown("time_to_first_token_seconds_count") + grown("inter_token_latency_seconds_count"),
        prompt_tokens=grown("prompt_tokens_total"),
        aborted=grown("num_aborted_requests_total"),
        preempted=grown("num_preemptions_total"),
        ttft=_quantiles(since, now, "time_to_first_token_seconds"),
        tbt=_quantiles(since, now, "inter_token_latency_seconds"),
        target=now.values.get(("slo_tbt_seconds",)),
        held=now.values.get(("tbt_p99_seconds",)) or None,
        share=now.values.get(("heavy_share_ratio",)),
        prefixes=_share(grown("prefix_cache_hits_total"), grown("prefix_cache_queries_total")),
        visual=_share(grown("mm_cache_hits_total"), grown("mm_cache_queries_total")),
        restarts=now.values.get(("worker_restarts_total",)),
        memory=now.by_label("memory_bytes"),
    )


def _pages(now: Sample, buffer: str, memory: str) -> Pages:
    names = ("buffer_used_pages", "buffer_total_pages", "buffer_cached_pages", "buffer_peak_pages")
    return Pages(*(int(now.one(name, buffer, memory)) for name in names))


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _quantiles(before: Sample, now: Sample, name: str) -> Quantiles | None:
    """Return those of what a histogram measured between two samples."""
    buckets = sorted(
        (float(bound), count - before.one(f"{name}_bucket", bound))
        for bound, count in now.by_label(f"{name}_bucket").items()
    )
    if not buckets or buckets[-1][1] <= 0:
        return None
    return Quantiles(_quantile(buckets, 0.5), _quantile(buckets, 0.99))


def _quantile(buckets: list[tuple[float, float]], share: float) -> float:
    """Return a quantile as Prometheus does: evenly within a bucket, and of the last one its beginning."""
    rank = share * buckets[-1][1]
    for (low, below), (high, count) in pairwise([(0.0, 0.0), *buckets]):
        if count >= rank and count > below:
            return low if high == float("inf") else low + (high - low) * (rank - below) / (count - below)
    return buckets[-1][0]
