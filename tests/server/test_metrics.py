"""Metrics as Prometheus reads them."""

from metered_engine import Engine
from prometheus_client.parser import text_string_to_metric_families

from unifiedserve.observe.metrics import Metrics


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """Value by sample name (without the prefix) and label values."""
    return {
        (sample.name.removeprefix("unifiedserve:"), tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def test_what_the_engine_reports_is_counted() -> None:
    metrics = Metrics()
    metrics.request_arrived()
    metrics.first_token(0.2)
    metrics.token_gap(0.01)
    metrics.token_gap(0.02)
    metrics.request_finished("length", 1.5, 100, 3)
    metrics.stage_time("encode", "queue", 0.1)
    metrics.stage_time("encode", "run", 0.3)
    metrics.worked("encode-2", "encode", 0.3)
    metrics.decode_host(0.0002)
    metrics.decoded_eagerly()
    metrics.preempted()
    metrics.aborted()
    metrics.looked_up("kv", 100, 64)
    metrics.looked_up("visual", 30, 30)
    values = samples(metrics)
    assert values["requests_total", ()] == 1
    assert values["time_to_first_token_seconds_sum", ()] == 0.2
    assert values["inter_token_latency_seconds_count", ()] == 2
    assert values["e2e_request_latency_seconds_sum", ()] == 1.5
    assert values["request_success_total", ("length",)] == 1
    assert values["prompt_tokens_total", ()] == 100
    assert values["generation_tokens_total", ()] == 3
    assert values["request_queue_time_seconds_sum", ("encode",)] == 0.1
    assert values["request_stage_time_seconds_sum", ("encode",)] == 0.3
    assert values["worker_busy_seconds_total", ("encode", "encode-2")] == 0.3
    assert values["decode_host_seconds_sum", ()] == 0.0002
    assert values["decode_eager_steps_total", ()] == 1
    assert values["num_preemptions_total", ()] == 1
    assert values["num_aborted_requests_total", ()] == 1
    assert values["prefix_cache_queries_total", ()] == 100
    assert values["prefix_cache_hits_total", ()] == 64
    assert values["mm_cache_queries_total", ()] == 30
    assert values["mm_cache_hits_total", ()] == 30


def test_gauges_are_read_at_scrape_time() -> None:
    metrics = Metrics()
    assert ("num_requests_running", ("decode",)) not in samples(metrics)
    metrics.bind(Engine())
    values = samples(metrics)
    assert values["num_requests_running", ("decode",)] == 3
    assert values["num_requests_waiting", ("encode",)] == 4
    assert values["buffer_usage_ratio", ("kv", "mem0")] == 0.25
    assert values["buffer_used_pages", ("kv", "mem0")] == 5
    assert values["buffer_total_pages", ("kv", "mem0")] == 20
    assert values["buffer_usage_ratio", ("patch", "mem0")] == 0
    assert values["buffer_peak_pages", ("kv", "mem0")] == 11
    assert values["buffer_cached_pages", ("kv", "mem0")] == 7
    assert values["memory_bytes", ("KV cache",)] == 3 << 20
    assert values["slo_tbt_seconds", ()] == 0.08
    assert values["heavy_share_ratio", ()] == 0.25
    assert values["tbt_p99_seconds", ()] == 0.07
    assert values["worker_silent_seconds", ("vision",)] == 1.5
    assert values["num_requests_in_flight", ()] == 4
    assert values["num_requests_queued", ()] == 3
    assert values["cache_config_info", ("16", "20")] == 1
    assert values["workers", ("encode",)] == 2
    assert values["role_changes_total", ()] == 7


def test_engines_do_not_share_metrics() -> None:
    first, second = Metrics(), Metrics()
    first.preempted()
    assert samples(second)["num_preemptions_total", ()] == 0
