"""The benchmark's client against a daemon: what it sees, and what the daemon tells of the same requests."""

import pytest
from completions import BUNDLED
from daemon import Daemon

from unifiedserve.bench.client.body import Wishes
from unifiedserve.bench.client.connection import connect
from unifiedserve.bench.client.target import find_target
from unifiedserve.bench.records import Run
from unifiedserve.bench.requests import Arrival, Medium, Request, Text, Turn
from unifiedserve.bench.run.measure import measure
from unifiedserve.bench.run.plan import Manner, Plan
from unifiedserve.samples import FOLDER

VIDEO = Medium(kind="video", path=str(FOLDER / "shapes-events.mp4"), seconds=10.0)


def asked(*parts: Text | Medium, **fields: float) -> Turn:
    return Turn(parts=parts, max_tokens=8, **fields)  # type: ignore[arg-type]


REQUESTS = [
    Request(id="text", kind="text", turns=(asked(Text("What is in this video?")),)),
    Request(id="video", kind="video", turns=(asked(VIDEO, Text("What happened last?")),)),
    Request(id="chat", kind="chat", turns=(asked(Text("How many?")), asked(Text("And now?"), pause=0.01))),
]


async def run(daemon: Daemon, requests: list[Request]) -> Run:
    async with connect(daemon.url, silence=300.0) as http:
        target = await find_target(http)
        schedule = [Arrival(0.05 * number, request) for number, request in enumerate(requests)]
        plan = Plan(name="n", workload="w", arrivals="a", seed=1, requests=schedule, warmup=REQUESTS[:1])
        manner = Manner(url=daemon.url, target=target, wishes=Wishes(media={"frames": 8}))
        return await measure(http, plan, manner)


@pytest.mark.daemon("requests over HTTP, its metrics and its trace", **BUNDLED)
async def test_what_the_client_sees_agrees_with_what_the_daemon_tells(daemon: Daemon) -> None:
    found = await run(daemon, REQUESTS)
    records = {(record.request, record.turn): record for record in found.records}
    assert [record.error for record in found.records] == [None] * 4
    assert all(len(record.token_times) == 8 and record.timed == "token" for record in found.records)
    assert records["chat", 1].prompt_tokens > records["chat", 0].prompt_tokens
    assert records["chat", 1].due == pytest.approx(records["chat", 0].ended + 0.01)
    timing = found.timing
    assert timing is not None
    assert timing.ttft_here is not None
    assert timing.ttft_there is not None
    assert timing.ttft_here > timing.ttft_there > 0  # a token is at the daemon before it is here
    for record in found.records:
        assert {"prefill-queue", "prefill", "handoff", "decode"} <= record.phases.keys()
        assert max(record.phases.values()) < record.ended - record.sent
    assert {"vision", "encode"} <= records["video", 0].phases.keys()
    assert "vision" not in records["text", 0].phases


@pytest.mark.daemon("a body's limit, and files", **BUNDLED)
async def test_a_large_video_is_answered_as_a_small_one(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = await run(daemon, REQUESTS[1:2])
    monkeypatch.setattr("unifiedserve.bench.client.delivery.LARGE_BYTES", 1000)
    ahead = await run(daemon, REQUESTS[1:2])
    assert [found.records[0].error for found in (inside, ahead)] == [None, None]
    assert ahead.records[0].text == inside.records[0].text
    assert "uploaded" in ahead.media
    assert "uploaded" not in inside.media
