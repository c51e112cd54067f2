"""Who holds targets, over all scales and rates, and the figures of whole runs."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.bench.metrics.attainment import (
    Goodput,
    attainment,
    attainment_over_scale,
    attains,
    goodput,
    needed_scale,
    tbt_held,
    ttft_held,
)
from unifiedserve.bench.metrics.summary import Yardstick, failures, summarise, summarise_kinds
from unifiedserve.bench.records import Record
from unifiedserve.bench.slo import Slo

SLO = Slo(ttft=1.0, tbt=0.1)


def answer(ttft: float, gaps: list[float], kind: str = "text", due: float = 0.0, error: str | None = None) -> Record:
    times: list[float] = (due + ttft + np.cumsum([0.0, *gaps])).tolist()
    return Record(
        request="r", kind=kind, due=due, sent=due, token_times=times, ended=times[-1], error=error, prompt_tokens=100
    )


GAPS = st.lists(st.floats(0.01, 1.0), max_size=30)
ANSWERS = st.builds(
    answer,
    st.floats(0.01, 10.0),
    GAPS,
    st.sampled_from(["text", "image"]),
    st.floats(0, 100),
    st.sampled_from([None, None, None, "gone"]),
)


def by_the_definition(record: Record, slo: Slo) -> bool:
    """A request counts if its TTFT holds and 90 % of its TBTs do; failed requests never do."""
    gaps = np.diff(record.token_times)
    held = bool((gaps <= slo.tbt_limit).sum() * 10 >= 9 * len(gaps))
    return record.error is None and record.token_times[0] - record.due <= slo.ttft_of(record) and held


@pytest.mark.parametrize(
    ("record", "held"),
    [
        (answer(0.9, [0.05] * 10), True),
        (answer(1.1, [0.05] * 10), False),
        (answer(0.9, [0.05] * 9 + [5.0]), True),
        (answer(0.9, [0.05] * 8 + [5.0, 5.0]), False),
        (answer(0.9, [0.05] * 7 + [5.0]), False),
        (answer(0.9, []), True),
        (answer(0.9, [0.05], error="gone"), False),
        (Record(request="r", kind="text", due=0.0, sent=0.0), False),
    ],
    ids=["holds", "late", "one of ten", "two of ten", "one of eight", "one token", "failed", "no token"],
)
def test_a_request_holds_its_targets_by_ttft_and_nine_tenths_of_its_tbts(record: Record, held: bool) -> None:
    assert attains(record, SLO) is held


@given(ANSWERS, st.floats(0.01, 5.0), st.floats(0.01, 1.0))
def test_attainment_is_what_the_definition_says(record: Record, ttft: float, tbt: float) -> None:
    slo = Slo(ttft=ttft, tbt=tbt)
    assert attains(record, slo) is by_the_definition(record, slo)


@given(st.lists(ANSWERS, min_size=1, max_size=20), st.lists(st.floats(0.1, 10.0), min_size=1, max_size=10))
def test_attainment_over_scale_is_that_of_scaled_targets_and_rises(records: list[Record], scales: list[float]) -> None:
    scales = sorted(scales)
    shares = [share or 0.0 for share in attainment_over_scale(records, SLO, scales)]
    assert shares == sorted(shares)
    needed = [needed_scale(record, SLO) for record in records]
    for scale, share in zip(scales, shares, strict=True):
        if not any(value == pytest.approx(scale) for value in needed):  # a rounding decides there
            assert share == attainment(records, SLO.scaled(scale))


@given(st.lists(ANSWERS, max_size=20), st.lists(ANSWERS, max_size=20))
def test_attainment_of_merged_rounds_is_the_weighted_mean(ours: list[Record], theirs: list[Record]) -> None:
    together = attainment(ours + theirs, SLO)
    held = [len(some) * (attainment(some, SLO) or 0.0) for some in (ours, theirs)]
    assert (together or 0.0) * len(ours + theirs) == pytest.approx(sum(held))


def test_long_videos_have_a_share_more() -> None:
    video = answer(7.0, [])
    video.video_seconds = 60.0
    assert not attains(video, SLO)
    assert attains(video, Slo(ttft=1.0, ttft_per_video_second=0.1))


def test_shares_of_what_holds() -> None:
    records = [answer(0.5, [0.05, 0.2]), answer(2.0, [0.05, 0.05]), answer(0.1, [9.0], error="gone")]
    assert ttft_held(records, SLO) == 0.5
    assert tbt_held(records, SLO) == 0.75
    assert (ttft_held([], SLO), tbt_held([], SLO), attainment([], SLO)) == (None, None, None)


def test_without_targets_none_are_met() -> None:
    records = [answer(0.5, [0.05, 0.2]), answer(0.1, [9.0], error="gone")]
    summary = summarise(records, Yardstick())
    assert (summary.attainment, summary.ttft_held, summary.tbt_held) == (None, None, None)
    assert (ttft_held(records, Slo(tbt=0.1)), tbt_held(records, Slo(tbt=0.1))) == (None, 0.5)
    assert (ttft_held(records, Slo(ttft=1.0)), tbt_held(records, Slo(ttft=1.0))) == (1.0, None)


@pytest.mark.parametrize(
    ("points", "found"),
    [
        ([(2.0, 0.8), (1.0, 1.0)], Goodput(1.5, False)),
        ([(1.0, 1.0), (2.0, 0.95)], Goodput(2.0, True)),
        ([(1.0, 0.5)], None),
        ([(1.0, 0.9), (2.0, 0.0)], Goodput(1.0, False)),
        ([(1.0, 0.95), (2.0, 0.85), (3.0, 0.92), (4.0, 0.88)], Goodput(3.5, False)),
        ([], None),
    ],
    ids=["between", "beyond", "below", "at the goal", "the last crossing", "nothing"],
)
def test_goodput_is_where_attainment_falls_below_the_goal(
    points: list[tuple[float, float]], found: Goodput | None
) -> None:
    assert goodput(points) == (None if found is None else pytest.approx(found))


@given(st.lists(ANSWERS, max_size=15), st.randoms())
def test_the_order_of_records_does_not_matter(records: list[Record], shuffled: random.Random) -> None:
    mixed = list(records)
    shuffled.shuffle(mixed)
    ours, theirs = summarise(records, Yardstick(slo=SLO)), summarise(mixed, Yardstick(slo=SLO))
    assert (ours.ttft, ours.tbt, ours.e2e, ours.attainment) == (theirs.ttft, theirs.tbt, theirs.e2e, theirs.attainment)
    assert ours.stall_share == pytest.approx(theirs.stall_share)


@given(st.lists(ANSWERS, max_size=15))
def test_kinds_make_up_the_whole(records: list[Record]) -> None:
    yardstick = Yardstick(slo=SLO)
    overall, kinds = summarise(records, yardstick), summarise_kinds(records, yardstick)
    assert overall.requests == len(records) == sum(summary.requests for summary in kinds.values())
    assert overall.failed == sum(summary.failed for summary in kinds.values())
    if overall.token_throughput is not None:
        assert overall.token_throughput == pytest.approx(sum(s.token_throughput or 0 for s in kinds.values()))


def test_failures_are_counted_by_message() -> None:
    failed = [answer(1.0, [], error=error) for error in ("b", "a", "b", "c")]
    assert failures([*failed, answer(1.0, [])]) == [("b", 2), ("a", 1), ("c", 1)]


def test_what_is_due_in_the_ramps_is_left_out() -> None:
    records = [answer(5.0 if due < 2 else 0.5, [0.05], due=float(due)) for due in range(10)]
    assert summarise(records, Yardstick(slo=SLO)).attainment == 0.8
    steady = summarise(records, Yardstick(slo=SLO, ramp_up=2.0))
    assert (steady.requests, steady.attainment) == (8, 1.0)
