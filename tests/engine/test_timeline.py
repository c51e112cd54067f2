"""The timeline says when each stage queued, started and ended each request."""

from collections.abc import Callable

import httpx
import pytest
from completions import KEEPS_NOTHING
from daemon import Daemon
from media import Clip, text_part, video_part

from unifiedserve.placement import Stage

pytestmark = pytest.mark.daemon("spans of real work", **KEEPS_NOTHING)


def test_a_video_request_leaves_spans_of_every_stage(daemon: Daemon, clips: Callable[[int], Clip]) -> None:
    completion = daemon.client.chat.completions.create(
        model=daemon.engine.model_name,
        messages=[{"role": "user", "content": [video_part(clips(64)), text_part("What happens?")]}],  # type: ignore[list-item]
        max_tokens=8,
        extra_body={"ignore_eos": True, "media_io_kwargs": {"video": {"num_frames": 64}}},
    )
    daemon.wait_idle()
    spans = daemon.engine.observation.timeline(completion.id)
    assert all(span.start <= span.end for span in spans)
    work = {stage: [s for s in spans if s.stage == stage and s.name != "queue"] for stage in Stage}
    queued = {stage: [s for s in spans if s.stage == stage and s.name == "queue"] for stage in Stage}
    assert all(work.values())
    assert all(queued.values())
    starts = [min(span.start for span in work[stage]) for stage in Stage]
    assert starts == sorted(starts)
    for stage in Stage:
        assert min(span.start for span in queued[stage]) <= min(span.start for span in work[stage])
    assert len(work[Stage.DECODE]) == 7, "the first of 8 tokens comes from prefill"
    assert len(work[Stage.PREFILL]) > 1, "the prompt is longer than a chunk"


def test_the_trace_is_chromes_format(daemon: Daemon) -> None:
    completion = daemon.client.chat.completions.create(
        model=daemon.engine.model_name, messages=[{"role": "user", "content": "Hello"}], max_tokens=4
    )
    daemon.wait_idle()
    trace = httpx.get(f"{daemon.url}/debug/trace", params={"request_id": completion.id}).json()
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {event["cat"] for event in events} == {"analyse", "prefill", "decode"}
    assert all(event["dur"] >= 0 and event["args"]["requests"] == [completion.id] for event in events)
    tokens = {
        stage: sum(event["args"].get("tokens", 0) for event in events if event["cat"] == stage)
        for stage in ("prefill", "decode")
    }
    assert completion.usage is not None
    assert tokens == {"prefill": completion.usage.prompt_tokens, "decode": 3}, "the first of 4 comes from prefill"
    named = {event["pid"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert {event["pid"] for event in events} <= named
