"""Latencies, distributions, stalls, rates and phases of hand-made records, and what holds for any."""

import math
import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.bench.metrics import latency
from unifiedserve.bench.metrics.accuracy import accuracy
from unifiedserve.bench.metrics.distribution import describe, interval
from unifiedserve.bench.metrics.phases import breakdown
from unifiedserve.bench.metrics.slowdown import alone, slowdown
from unifiedserve.bench.metrics.stall import stall_limit, stall_share, stall_time
from unifiedserve.bench.metrics.throughput import (
    offered_rate,
    request_throughput,
    token_progress,
    token_throughput,
    video_throughput,
)
from unifiedserve.bench.metrics.window import Window, due_in, steady, whole
from unifiedserve.bench.records import Record
from unifiedserve.bench.slo import Slo
from unifiedserve.errors import ConfigError

SECONDS = st.floats(0.002, 100.0)


def record(times: list[float], due: float = 0.0, kind: str = "text", **rest: object) -> Record:
    fields = {"request": "r", "sent": due, "ended": times[-1] if times else due} | rest
    return Record(kind=kind, due=due, token_times=times, **fields)  # type: ignore[arg-type]


def test_latencies_count_from_when_a_turn_was_due_not_from_when_it_was_sent() -> None:
    late = record([6.0, 6.1, 6.4], due=2.0, sent=5.0, ended=6.5)
    assert latency.ttft(late) == pytest.approx(4.0)
    assert latency.e2e(late) == pytest.approx(4.5)
    assert latency.send_delay(late) == pytest.approx(3.0)
    assert latency.tbts(late) == pytest.approx([0.1, 0.3])
    assert latency.tpot(late) == pytest.approx(0.2)  # (last − first) / (n − 1): DistServe §2
    assert latency.normalised_latency(late) == pytest.approx(1.5)


def test_tokens_that_came_together_are_one_arrival() -> None:
    bursts = record([1.0, 1.0, 1.2, 1.2003, 1.2006, 1.6])
    assert latency.tbts(bursts) == pytest.approx([0.2, 0.4])
    assert latency.tpot(bursts) == pytest.approx(0.6 / 4)  # four tokens after those of the first arrival


def test_tokens_that_all_came_at_once_have_no_time_between_them() -> None:
    whole_answer = record([1.0] * 5)
    assert latency.tbts(whole_answer).size == 0
    assert latency.tpot(whole_answer) is None
    assert latency.ttft(whole_answer) == 1.0


@pytest.mark.parametrize("broken", [record([]), record([], error="refused", status=500)], ids=["empty", "failed"])
def test_without_tokens_there_are_no_latencies(broken: Record) -> None:
    assert latency.ttft(broken) is None
    assert latency.tpot(broken) is None
    assert latency.e2e(broken) is None
    assert latency.normalised_latency(broken) is None
    assert latency.tbts(broken).size == 0


@given(st.lists(st.floats(0.0, 0.01), min_size=1, max_size=60))
def test_arrivals_are_a_moment_apart_and_lose_no_time(between: list[float]) -> None:
    times = list(np.cumsum(between))
    arrivals, first = latency.arrivals(record(times))
    assert arrivals[0] == times[0]
    assert (np.diff(arrivals) >= latency.MOMENT).all()
    assert 1 <= first <= len(times)
    assert times[-1] - arrivals[-1] < latency.MOMENT


@given(st.lists(SECONDS, min_size=1, max_size=50), st.randoms())
def test_a_distribution_is_numpys_whatever_the_order(values: list[float], shuffled: random.Random) -> None:
    found = describe(values)
    assert found is not None
    assert (found.n, found.max) == (len(values), max(values))
    assert found.mean == pytest.approx(statistics.fmean(values))
    percentiles = [found.p50, found.p90, found.p95, found.p99]
    assert percentiles == pytest.approx(np.percentile(values, [50, 90, 95, 99]))
    assert percentiles == sorted(percentiles)
    mixed = list(values)
    shuffled.shuffle(mixed)
    assert describe(mixed) == found


def test_nothing_has_no_distribution() -> None:
    assert describe([]) is None
    assert describe([None]) is None


def test_the_interval_is_students() -> None:
    # Student's t of 4 degrees of freedom at 97.5 % is 2.776 (any table)
    low, high = interval([9.0, 10.0, 11.0, 12.0, 13.0]) or (0.0, 0.0)
    reach = 2.776 * statistics.stdev([9, 10, 11, 12, 13]) / math.sqrt(5)
    assert (low, high) == pytest.approx((11 - reach, 11 + reach))
    assert interval([3.0]) is None
    assert interval([3.0] * 40) == pytest.approx((3.0, 3.0))


def test_a_stall_is_a_gap_over_the_target_or_five_times_the_undisturbed_one() -> None:
    stream = record([1.0, 1.1, 1.2, 2.2, 2.3])
    assert stall_limit(Slo(tbt=0.5)) == 0.5
    assert stall_limit(Slo()) is None
    assert stall_limit(Slo(tbt=0.5), [record([0.0, 0.04, 0.08, 1.08])]) == pytest.approx(0.2)
    assert stall_time(stream, 0.5) == pytest.approx(1.0)
    assert stall_share([stream, record([0.0, 0.7])], 0.5) == pytest.approx(1.7 / 2.0)
    assert stall_share([record([1.0]), record([])], 0.5) is None


@given(st.lists(st.lists(SECONDS, max_size=20), max_size=5), st.floats(0.001, 50))
def test_a_share_of_stalls_is_a_share(streams: list[list[float]], limit: float) -> None:
    share = stall_share([record(list(np.cumsum(gaps))) for gaps in streams], limit)
    assert share is None or 0 <= share <= 1 + 1e-9


def test_throughput_counts_what_ends_and_comes_within_the_window() -> None:
    records = [
        record([1.0, 2.0, 3.0], video_seconds=60.0, kind="video"),
        record([9.0, 10.0, 11.0], due=8.0),
        record([4.0], error="gone", ended=5.0),
    ]
    window = Window(0.0, 10.0)
    assert request_throughput(records, window) == pytest.approx(0.1)
    assert token_throughput(records, window) == pytest.approx(0.6)  # of the failed one, too
    assert video_throughput(records, window) == pytest.approx(6.0)
    assert request_throughput(records, Window(3.0, 3.0)) is None
    times, counts = token_progress(records)
    assert list(times) == [1, 2, 3, 4, 9, 10, 11]
    assert list(counts) == [1, 2, 3, 4, 5, 6, 7]


def test_the_offered_rate_is_that_of_conversations() -> None:
    turns = [record([], due=due) for due in (0.0, 2.0, 4.0)] + [record([], due=3.0, turn=1)]
    assert offered_rate(turns) == pytest.approx(0.5)
    assert offered_rate(turns[:1]) is None
    assert offered_rate([]) is None


def test_ramps_are_cut_off() -> None:
    records = [record([due + 1.0], due=due) for due in range(11)]
    assert whole(records) == (0.0, 11.0)
    window = steady(records, 2.0, 3.0)
    assert window == (2.0, 7.0)
    assert [one.due for one in due_in(records, window)] == [2, 3, 4, 5, 6, 7]
    with pytest.raises(ConfigError, match=r"leave nothing of 10\.0 s"):
        steady(records, 6.0, 4.0)
    assert whole([]) is None
    assert steady([], 1.0, 1.0) is None


def test_a_request_without_tokens_still_took_time() -> None:
    assert whole([record([], due=3.0, error="refused")]) == (3.0, 3.0)


def test_slowdown_is_over_the_kinds_median_when_alone() -> None:
    isolated = [record([0.2]), record([0.4]), record([0.6]), record([9.0], error="gone"), record([4.0], kind="video")]
    usual = alone(isolated, latency.ttft)
    assert usual == {"text": 0.4, "video": 4.0}
    assert slowdown(record([3.2], due=2.0), latency.ttft, usual) == pytest.approx(3.0)
    assert slowdown(record([3.2], kind="image"), latency.ttft, usual) is None
    assert slowdown(record([]), latency.ttft, usual) is None


def test_phases_of_all_traced_requests() -> None:
    traced = [record([], phases={"prefill": 1.0, "decode": 2.0}), record([], phases={"decode": 4.0}), record([])]
    found = breakdown(traced)
    assert list(found) == ["prefill", "decode"]
    assert (found["prefill"].mean, found["prefill"].median, found["prefill"].sum) == (0.5, 0.5, 1.0)
    assert found["decode"].sum == 6.0
    assert breakdown([record([])]) == {}


@given(st.lists(st.dictionaries(st.sampled_from(["queue", "encode", "decode"]), SECONDS), max_size=20))
def test_sums_of_phases_are_the_time_of_all_requests(phases: list[dict[str, float]]) -> None:
    found = breakdown([record([], phases=of) for of in phases])
    assert sum(time.sum for time in found.values()) == pytest.approx(sum(sum(of.values()) for of in phases))


def test_accuracy_is_of_those_that_can_be_judged() -> None:
    judged = [record([], right=right) for right in (True, True, False, None)]
    assert accuracy(judged) == pytest.approx(2 / 3)
    assert accuracy([record([])]) is None
