"""What a server tells of itself: who it is, its own mean TTFT, and where the time of requests went."""

import json
from typing import Any

import httpx
import msgspec
import pytest
from chat_server import say, served
from pieces import http

from unifiedserve.bench.client.connection import ASIDE, connect
from unifiedserve.bench.client.dialects import DIALECTS
from unifiedserve.bench.client.target import find_target
from unifiedserve.bench.records import Record
from unifiedserve.bench.run.phases import Event, add_trace, traced
from unifiedserve.bench.run.server_ttft import Observed, mean_ttft, observe
from unifiedserve.errors import ConfigError


def models(*owners: str) -> bytes:
    return json.dumps({"data": [{"id": f"m{n}", "owned_by": owner} for n, owner in enumerate(owners)]}).encode()


@pytest.mark.parametrize(
    ("owner", "dialect"),
    [("vllm", "vllm"), ("unifiedserve", "unifiedserve"), ("sglang", "sglang"), ("someone", "openai")],
)
async def test_servers_are_known_by_who_owns_their_models(owner: str, dialect: str) -> None:
    pages = {"v1/models": models(owner), "version": b'{"version": "1.2"}'}
    async with served(say, **pages) as server, http(server.url + "/v1/") as client:
        target = await find_target(client)
    assert (target.model, target.dialect.name, target.version) == ("m0", dialect, "1.2")


async def test_what_is_given_goes_before_what_the_server_says() -> None:
    async with served(say, **{"v1/models": models("vllm", "vllm")}) as server, http(server.url) as client:
        target = await find_target(client, model="m1", dialect="openai")
        assert (target.model, target.dialect.name, target.version) == ("m1", "openai", None)
        with pytest.raises(ConfigError, match="serves m0, m1, not m2"):
            await find_target(client, model="m2")


async def test_no_server() -> None:
    async with served(say) as server:
        url = server.url
    async with http(url) as client:
        with pytest.raises(ConfigError, match="cannot be reached"):
            await find_target(client)
    for wrong, words in (
        ("localhost:8000", "must begin with http"),
        ("http://a:b", "port"),
        ("http://a:65536", "port"),
    ):
        with pytest.raises(ConfigError, match=words):
            connect(wrong, 1.0)


@pytest.mark.parametrize("page", [b"<html>", b'{"data": []}', b'{"data": 3}', b'{"data": [{"id": "\xff"}]}'])
async def test_no_such_server(page: bytes) -> None:
    async with served(say, **{"v1/models": page}) as server, http(server.url) as client:
        with pytest.raises(ConfigError, match="v1/models"):
            await find_target(client)


async def test_ttft_by_the_metrics_of_the_server() -> None:
    text = b"""# HELP vllm:time_to_first_token_seconds x
vllm:time_to_first_token_seconds_bucket{le="1.0"} 2
vllm:time_to_first_token_seconds_count{engine="0",model_name="a b"} 2
vllm:time_to_first_token_seconds_sum{engine="0",model_name="a b"} 0.5
vllm:time_to_first_token_seconds_count{engine="1",model_name="a b"} 1.0
vllm:time_to_first_token_seconds_sum{engine="1",model_name="a b"} 2.5e-1
vllm:time_to_first_token_seconds_created{engine="0"} 1.7e9
"""
    async with served(say, metrics=text) as server, http(server.url) as client:
        assert await observe(client, DIALECTS["vllm"]) == Observed(0.75, 3.0)
        assert await observe(client, DIALECTS["sglang"]) is None
        assert await observe(client, DIALECTS["openai"]) is None


async def test_a_server_that_hangs_after_a_run_does_not_hold_its_figures_back() -> None:
    asked: dict[str, float] = {}

    def hang(request: httpx.Request) -> httpx.Response:
        asked[request.url.path] = request.extensions["timeout"]["read"]
        raise httpx.ReadTimeout("")

    async with httpx.AsyncClient(transport=httpx.MockTransport(hang), base_url="http://a", timeout=9999.0) as client:
        assert await observe(client, DIALECTS["unifiedserve"]) is None
        await add_trace(client, DIALECTS["unifiedserve"], [answered(0.0, 1.0)])
    assert asked == {"/metrics": ASIDE, "/debug/trace": ASIDE}


def answered(sent: float, first: float, due: float = 0.0) -> Record:
    return Record(request="r", kind="text", due=due, sent=sent, token_times=[first], answer="chatcmpl-1")


def test_the_mean_ttft_here_and_there() -> None:
    records = [answered(1.0, 2.01), answered(1.0, 4.03)]
    assert mean_ttft(Observed(10.0, 5.0), Observed(14.0, 7.0), records) == pytest.approx((2.02, 2.0))
    assert mean_ttft(Observed(10.0, 5.0), Observed(14.0, 8.0), records) is None  # others asked, too
    assert mean_ttft(None, Observed(14.0, 7.0), records) is None


def test_the_trace_tells_more_than_the_metrics() -> None:
    records = [answered(1.0, 2.01), answered(1.0, 4.03)]
    records[0].ttft_there = 1.0
    assert mean_ttft(None, None, records) is None  # it does not know both
    records[1].ttft_there = 3.0
    assert mean_ttft(None, None, records) == pytest.approx((2.02, 2.0))


def span(cat: str, start: float, end: float, tid: int = 1, requests: tuple[str, ...] = ("chatcmpl-1",)) -> Any:
    """A complete event, in seconds. Of each instance's tracks the first is its queue."""
    ts, dur, name = start * 1e6, (end - start) * 1e6, cat if tid % 1000 else "queue"
    return {"ph": "X", "name": name, "cat": cat, "tid": tid, "ts": ts, "dur": dur, "args": {"requests": requests}}


TRACE = [
    {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "vision"}},
    span("vision", 0.0, 1.0, tid=0),
    span("vision", 1.0, 3.0, tid=1),
    span("vision", 2.0, 4.0, tid=2),
    span("encode", 3.5, 5.0, requests=("chatcmpl-1", "chatcmpl-2")),
    span("prefill", 5.0, 5.5, tid=0),
    span("prefill", 5.5, 6.0),
    span("prefill", 7.0, 8.0),
    span("decode", 8.0, 8.25, tid=0),
    span("decode", 8.5, 9.0),
    span("decode", 9.5, 10.0),
]
PHASES = {
    "queue": 1.0,
    "vision": 3.0,
    "encode": 1.5,
    "prefill-queue": 0.5,
    "prefill": 1.5,
    "handoff": 0.5,
    "decode": 1.0,
}


def test_phases_of_a_request() -> None:
    found = traced(msgspec.convert(TRACE, list[Event]))
    assert list(found) == ["chatcmpl-1"]  # the trace does not go back to the other one's prefill
    assert found["chatcmpl-1"].phases == pytest.approx(PHASES)
    assert found["chatcmpl-1"].ttft is None  # nor to this one's arrival


def test_phases_are_the_same_where_a_stages_second_instance_works() -> None:
    second = [event | {"tid": event["tid"] + 1000} for event in TRACE]
    assert traced(msgspec.convert(second, list[Event]))["chatcmpl-1"].phases == pytest.approx(PHASES)


def test_pages_that_travel_are_phases_of_their_own() -> None:
    pulls = [span("prefill", 5.0, 5.25) | {"name": "pull"}, span("decode", 8.0, 8.125) | {"name": "pull"}]
    found = traced(msgspec.convert([*TRACE, *pulls], list[Event]))
    assert found["chatcmpl-1"].phases == pytest.approx(PHASES | {"ep-pull": 0.25, "pd-pull": 0.125, "handoff": 0.375})


def test_phases_that_the_server_learns_to_tell() -> None:
    trace = [*TRACE, span("fetch", 0.0, 0.25), span("analyse", 0.25, 0.5)]
    found = traced(msgspec.convert(trace, list[Event]))["chatcmpl-1"]
    assert (found.phases["fetch"], found.phases["analyse"]) == pytest.approx((0.25, 0.25))
    assert found.ttft == pytest.approx(8.0)


def test_a_prompt_that_is_computed_again_has_had_its_first_token() -> None:
    trace = [*TRACE, span("analyse", 0.0, 0.5), span("prefill", 9.0, 9.4)]
    assert traced(msgspec.convert(trace, list[Event]))["chatcmpl-1"].ttft == pytest.approx(8.0)


async def test_phases_on_record() -> None:
    record = answered(0.0, 1.0)
    page = {"debug/trace": json.dumps({"traceEvents": TRACE}).encode()}
    async with served(say, **page) as server, http(server.url) as client:
        await add_trace(client, DIALECTS["unifiedserve"], [record])
    assert record.phases == pytest.approx(PHASES)
