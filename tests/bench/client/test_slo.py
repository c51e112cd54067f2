"""Targets by what a request asks for."""

from math import inf

import pytest

from unifiedserve.bench.records import Record
from unifiedserve.bench.slo import Slo, isolated_slo


def record(kind: str = "video", **fields: object) -> Record:
    return Record(request="r", kind=kind, due=0.0, sent=0.0, **fields)  # type: ignore[arg-type]


def test_a_long_video_has_longer() -> None:
    slo = Slo(ttft=1.0, ttft_per_prompt_token=0.001, ttft_per_video_second=0.05)
    assert slo.ttft_of(record(prompt_tokens=100)) == pytest.approx(1.1)
    assert slo.ttft_of(record(prompt_tokens=100, video_seconds=60.0)) == pytest.approx(4.1)


def test_no_target_is_always_held() -> None:
    assert (Slo().ttft_of(record(video_seconds=9.0)), Slo().tbt_limit) == (inf, inf)


def test_targets_scale() -> None:
    slo = Slo(ttft=1.0, ttft_per_video_second=0.5, ttft_of_kind={"text": 0.2}, tbt=0.1).scaled(3)
    assert slo.ttft_of(record(video_seconds=2.0)) == pytest.approx(6.0)
    assert (slo.ttft_of(record("text")), slo.tbt_limit) == pytest.approx((0.6, 0.3))


def test_longer_prompts_than_those_alone_have_longer_in_proportion() -> None:
    slo = Slo(ttft_of_kind={"text": 0.2}, tokens_of_kind={"text": 100}).scaled(5)
    assert [slo.ttft_of(record("text", prompt_tokens=tokens)) for tokens in (10, 100, 700)] == pytest.approx([1, 1, 7])


def test_an_isolated_run_tells_what_each_kind_takes() -> None:
    records = [
        record("text", token_times=[0.1, 0.2], prompt_tokens=10),
        record("text", token_times=[0.3, 0.4], prompt_tokens=30),
        record("text", token_times=[9.0], error="late"),
        record("video", token_times=[5.0, 5.3]),
        record("image"),
    ]
    slo = isolated_slo(records)
    assert slo.ttft_of_kind == pytest.approx({"text": 0.2, "video": 5.0})
    assert slo.tokens_of_kind == {"text": 20}  # the video's server does not count tokens
    assert slo.tbt == pytest.approx(0.1)
