"""What `unifiedserve top` makes of a daemon's metrics."""

import io
from collections.abc import Callable

import metered_engine
import pytest
from prometheus_client import CollectorRegistry
from rich.console import Console

from unifiedserve.cli.metrics_view import Pages, Quantiles, Sample, View, view_of
from unifiedserve.cli.top import State, table
from unifiedserve.observe.metrics import Metrics

CREATED = "unifiedserve:requests_created"


class Engine(metered_engine.Engine):
    """One that is at work."""

    def worker_requests(self) -> dict[tuple[str, str], tuple[int, int]]:
        return {("decode", "decode"): (3, 1)}

    def stages(self) -> dict[str, tuple[int, int]]:
        return {"decode": (3, 0), "vision": (1, 4)}

    def memory(self) -> dict[str, int]:
        return {"weights": 1 << 20}


@pytest.fixture
def metrics() -> Metrics:
    metrics = Metrics(CollectorRegistry())
    metrics.bind(Engine())
    return metrics


def seen(metrics: Metrics, at: float, started: float | None = 1000.0) -> Sample:
    """Return the metrics as of a time, of a daemon that started at another."""
    sample = Sample.parse(metrics.text().decode(), at)
    values = {key: value for key, value in sample.values.items() if key != ("requests_created",)}
    return Sample(at, values if started is None else {**values, ("requests_created",): started})


def answer(metrics: Metrics, ttft: float, *gaps: float) -> None:
    metrics.request_arrived()
    metrics.first_token(ttft)
    for gap in gaps:
        metrics.token_gap(gap)
    metrics.request_finished("stop", ttft + sum(gaps), 100, 1 + len(gaps))


def test_gauges_are_as_they_are_now(metrics: Metrics) -> None:
    view = view_of(None, seen(metrics, 1010.0))
    assert list(view.stages.items()) == [("vision", (1, 4)), ("decode", (3, 0))]
    assert list(view.buffers.items()) == [("patch", Pages(0, 0, 0, 0)), ("kv", Pages(5, 20, 7, 11))]
    assert (view.target, view.held, view.share) == (0.08, 0.07, 0.25)
    assert view.memory == {"weights": 1 << 20}


def test_buffers_of_several_memories_are_told_apart() -> None:
    class Apart(Engine):
        def buffers(self) -> dict[tuple[str, str], tuple[int, int]]:
            return {("mem1", "kv"): (1, 2), ("mem0", "visual"): (3, 4), ("mem0", "patch"): (5, 6)}

    metrics = Metrics(CollectorRegistry())
    metrics.bind(Apart())
    view = view_of(None, seen(metrics, 1010.0))
    assert [(name, pages.used, pages.total) for name, pages in view.buffers.items()] == [
        ("patch mem0", 5, 6),
        ("visual mem0", 3, 4),
        ("kv mem1", 1, 2),
    ]


def test_what_was_counted_between_two_samples(metrics: Metrics) -> None:
    answer(metrics, 30.0, 0.2, 0.2)
    metrics.looked_up("kv", 1000, 0)
    before = seen(metrics, 1010.0)
    answer(metrics, 0.3, 0.004, 0.004)
    metrics.request_arrived()
    metrics.aborted()
    metrics.preempted()
    metrics.looked_up("kv", 100, 64)
    view = view_of(before, seen(metrics, 1012.0))
    assert view.seconds == 2.0
    assert (view.requests, view.answers, view.tokens, view.prompt_tokens) == (2, 1, 3, 100)
    assert (view.aborted, view.preempted) == (1, 1)
    assert view.ttft is not None
    assert 0.25 <= view.ttft.p50 <= 0.5
    assert view.tbt is not None
    assert 0.002 <= view.tbt.p50 <= view.tbt.p99 <= 0.005
    assert view.prefixes == 0.64
    assert view.visual is None


def test_the_first_sample_tells_of_all_since_the_start(metrics: Metrics) -> None:
    answer(metrics, 0.3)
    view = view_of(None, seen(metrics, 1010.0))
    assert (view.seconds, view.requests) == (10.0, 1)


def test_a_restart_between_samples_begins_anew(metrics: Metrics) -> None:
    for _ in range(5):
        answer(metrics, 0.3)
    before = seen(metrics, 1010.0)
    again = Metrics(CollectorRegistry())
    answer(again, 0.02)
    view = view_of(before, seen(again, 1015.0, started=1011.0))
    assert (view.seconds, view.requests) == (4.0, 1)
    assert view.ttft is not None
    assert view.ttft.p99 <= 0.025


def test_without_a_start_rates_are_unknown_at_first(metrics: Metrics) -> None:
    answer(metrics, 0.3)
    first = seen(metrics, 1010.0, started=None)
    assert view_of(None, first).seconds is None
    assert view_of(None, first).requests == 1
    assert view_of(first, seen(metrics, 1011.0, started=None)).seconds == 1.0


def test_quantiles_lie_evenly_in_a_bucket(metrics: Metrics) -> None:
    for _ in range(100):
        metrics.first_token(0.3)  # in the bucket from 0.25 to 0.5
    ttft = view_of(None, seen(metrics, 1010.0)).ttft
    assert ttft == pytest.approx((0.375, 0.4975))


def test_what_is_beyond_all_buckets_is_at_least_the_last_bound(metrics: Metrics) -> None:
    metrics.first_token(9000.0)
    assert view_of(None, seen(metrics, 1010.0)).ttft == Quantiles(640.0, 640.0)


def test_no_answer_has_no_latency(metrics: Metrics) -> None:
    answer(metrics, 0.3)
    sample = seen(metrics, 1010.0)
    view = view_of(sample, sample._replace(time=1011.0))
    assert (view.ttft, view.tbt) == (None, None)


@pytest.mark.parametrize("text", ["", "# nothing\n", "python_gc_objects 3\n"])
def test_metrics_of_something_else_are_none_of_ours(text: str) -> None:
    assert not Sample.parse(text, 0.0).values


def test_what_is_no_metrics_is_said_to_be_none() -> None:
    with pytest.raises(ValueError, match=r"\S"):
        Sample.parse("<html><body>hello there", 0.0)


def printed(view: View, state: State) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(table(view, state, "http://somewhere"))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def line_of(metrics: Metrics) -> Callable[[str], str]:
    """Returns the line that begins so of what is printed after an answer."""
    answer(metrics, 0.3, 0.004)
    text = printed(view_of(None, seen(metrics, 1010.0)), State("all alive", "the server is busy"))
    return lambda title: next(line for line in text.splitlines() if line.startswith(title))


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("http://somewhere", ["10.0 s"]),
        ("vision", ["1", "4"]),
        ("kv", ["█████···", "25%", "7", "11", "20"]),
        ("requests", ["0.1/s", "0 clients left"]),
        ("tokens", ["0.2/s generated", "10.0/s"]),
        ("first token", ["p50 375.0 ms"]),
        ("beside heavy work", ["p99 70.0 ms of 80.0 ms", "25%"]),
        ("workers", ["all alive"]),
        ("new requests", ["busy"]),
        ("memory", ["weights 1 MiB"]),
    ],
)
def test_all_of_it_is_printed(line_of: Callable[[str], str], title: str, words: list[str]) -> None:
    assert all(word in line_of(title) for word in words)


def test_an_idle_daemon_of_another_version_is_printed() -> None:
    nothing = view_of(None, Sample(1010.0, {("requests_total",): 0.0}))
    assert "–" in printed(nothing, State("all alive", "taken"))


def test_restarts_are_told_where_they_are_counted() -> None:
    view = view_of(None, Sample(1010.0, {("worker_restarts_total",): 2.0}))
    assert "all alive · 2 restarts" in printed(view, State("all alive", "taken"))
