"""Plans over HTTP, and what is told of media in answers: their fields, in all places, and what is refused."""

from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from chat_requests import PATH, stream
from scripted import ScriptedEngine, say_words
from scripted_app import connected, question

from unifiedserve.errors import RequestError
from unifiedserve.messages.api import Delta, GenerateRequest
from unifiedserve.messages.seen import MediumPages, Packets, Picture, SeenMedium

SEEN = SeenMedium(
    kind="video",
    param="messages[0].content[0].video_url.url",
    width=640,
    height=360,
    frames=2,
    indices=[0, 30],
    seconds=[0.0, 1.5],
    pictures=[Picture(392, 224)],
    tokens=112,
    pages=MediumPages(7, 7),
    packets=Packets(31, 60, 0.5),
)
TOLD = {
    "kind": "video",
    "param": "messages[0].content[0].video_url.url",
    "width": 640,
    "height": 360,
    "frames": 2,
    "indices": [0, 30],
    "seconds": [0.0, 1.5],
    "pictures": [{"width": 392, "height": 224, "count": 1}],
    "tokens": 112,
    "pages": {"patch": 7, "visual": 7},
    "packets": {"decode": 31, "total": 60, "seconds": 0.5},
}


async def say_what_is_seen(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
    first = True
    async for delta in say_words(request):
        delta.media = [SEEN] if first and request.tell_media else None
        first = False
        yield delta


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(say_what_is_seen)


async def planned(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post("/v1/plan", json=question(**fields))


async def test_a_plan_is_told_and_nothing_is_generated(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    engine.expected_ttft = 1.2345
    engine.seen = [SEEN]
    response = await planned(client, max_tokens=9, stream=True)
    assert response.json() == {
        "object": "plan",
        "model": "scripted",
        "prompt_tokens": 7,
        "max_tokens": 9,
        "pages": {"patch": 7, "visual": 7, "kv": 1},
        "expected_ttft": 1234.5,
        "media": [TOLD],
    }
    assert engine.requests == []
    (asked,) = engine.plans
    assert asked.tell_media


async def test_what_was_not_measured_is_null(client: httpx.AsyncClient) -> None:
    assert (await planned(client)).json()["expected_ttft"] is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"frames": 3}, "frames"), ({"max_ttft": 0}, "max_ttft"), ({"max_ttft": "soon"}, "max_ttft"), ({"n": 0}, "n")],
)
async def test_a_bad_request_is_no_better_as_a_plan(
    client: httpx.AsyncClient, fields: dict[str, Any], param: str
) -> None:
    for path in ("/v1/plan", PATH):
        refused = await client.post(path, json=question(**fields))
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


async def test_what_the_engine_refuses_is_refused(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    engine.refusal = RequestError("the prompt is too long", param="messages")
    refused = await planned(client)
    assert (refused.status_code, refused.json()["error"]["message"]) == (400, "the prompt is too long")


@pytest.mark.parametrize("fields", [{"return_media_usage": True}, {"max_ttft": 250}])
async def test_an_answer_tells_what_was_seen(
    client: httpx.AsyncClient, engine: ScriptedEngine, fields: dict[str, Any]
) -> None:
    answer = (await client.post(PATH, json=question(**fields, n=2))).json()
    assert answer["usage"]["media"] == [TOLD]
    for options in ({"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}):
        *chunks, last = await stream(client, question(stream_options=options, **fields))
        assert last["usage"]["media"] == [TOLD]
        assert all("media" not in (chunk["usage"] or {}) for chunk in chunks)
    message = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, **fields}
    answer = (await client.post("/v1/messages", json=message)).json()
    assert answer["usage"]["media"] == [TOLD | {"param": "messages[0]"}]
    items = [{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "input_text", "text": "b"}]}]
    for own, param in (("hi", "input"), (items[1:], "input[0].content[0]"), (items, "input[0]")):
        told = (await client.post("/v1/responses", json={"input": own, **fields})).json()
        assert told["usage"]["media"] == [TOLD | {"param": param}]
    gone_on = (
        await client.post("/v1/responses", json={"input": "c", "previous_response_id": told["id"], **fields})
    ).json()
    assert gone_on["usage"]["media"] == [TOLD | {"param": "previous_response_id"}]
    limits = {request.max_ttft for request in engine.requests}
    assert limits == {0.25 if "max_ttft" in fields else None}


async def test_nothing_is_told_unasked(client: httpx.AsyncClient) -> None:
    for fields in ({}, {"return_media_usage": False}, {"max_ttft": None}):
        assert "media" not in (await client.post(PATH, json=question(**fields))).json()["usage"]
    assert "media" not in (await client.post("/v1/responses", json={"input": "hi"})).json()["usage"]
    message = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}
    assert "media" not in (await client.post("/v1/messages", json=message)).json()["usage"]


async def test_a_full_server_plans_nothing() -> None:
    engine = ScriptedEngine()
    async with connected(engine) as client:
        engine.full = RequestError("full")
        assert (await planned(client)).status_code == 400
        assert engine.plans == []
