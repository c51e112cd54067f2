"""Live events: bounded for slow readers, private where they show contents, and ended when the server stops."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from scripted import ScriptedEngine
from scripted_app import listening

from unifiedserve.errors import RequestError
from unifiedserve.observe.live import Dropped, Frame, Frames, Live, Spans


async def events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line:
            yield json.loads(line.removeprefix("data: "))


async def test_a_viewer_that_does_not_read_loses_the_oldest_and_is_told() -> None:
    live = Live()
    viewer = live.join(None)
    for number in range(600):
        live.tell_all(Spans([{"number": number}]))
    dropped, *rest = await viewer.take(0)
    assert dropped == Dropped(600 - len(rest))
    assert [event.events[0]["number"] for event in rest] == list(range(600 - len(rest), 600))
    assert len(rest) < 600
    assert await viewer.take(0) == []


async def test_contents_are_for_viewers_of_the_right_name_only() -> None:
    live = Live()
    nobody, right, wrong = live.join(None), live.join("secret"), live.join("guess")
    frames = Frames("chatcmpl-1", 0, [Frame(0, b"jpeg")])
    live.tell("secret", frames)
    live.tell_all(Spans([]))
    assert await right.take(0) == [frames, Spans([])]
    assert await wrong.take(0) == await nobody.take(0) == [Spans([])]
    assert live.watches("secret")
    live.leave(right)
    assert not live.watches("secret")
    assert not live.watches(None)


async def test_viewers_are_limited_and_wait_for_nothing_after_the_end() -> None:
    live = Live()
    viewers = [live.join(None) for _ in range(64)]
    with pytest.raises(RequestError, match="64 viewers"):
        live.join(None)
    waiting = asyncio.create_task(viewers[0].take(600))
    await asyncio.sleep(0)
    live.close()
    assert await waiting == []
    assert all(viewer.closed for viewer in viewers)
    live.leave(viewers[0])
    with pytest.raises(RequestError, match="shutting down"):
        live.join(None)


async def test_the_stream_begins_with_counters_and_goes_on_with_what_happens(engine: ScriptedEngine, url: str) -> None:
    async with httpx.AsyncClient() as client, client.stream("GET", f"{url}/v1/events?viewer=me") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        stream = events(response)
        assert await anext(stream) == {
            "type": "counters",
            "buffers": {"kv": {"used": 3, "cached": 2, "peak": 4, "total": 12}},
            "stages": {"decode": {"running": 0, "waiting": 2}},
            "workers": [
                {
                    "name": "encode-1",
                    "stages": ["encode"],
                    "cores": [0],
                    "memory": "mem0",
                    "state": "serving",
                    "becomes": None,
                }
            ],
            "streams": {"target": 0.1, "tbt": 0.09, "share": 0.5},
        }
        engine.live.tell("me", Frames("chatcmpl-1", 0, [Frame(5, b"jpeg")]))
        frames = {"type": "frames", "request": "chatcmpl-1", "medium": 0, "frames": [{"number": 5, "jpeg": "anBlZw=="}]}
        assert await anext(stream) == frames
        engine.live.close()
        assert [event async for event in stream] == []
    await left(engine)


async def test_a_viewer_that_goes_is_forgotten(engine: ScriptedEngine, url: str) -> None:
    async with httpx.AsyncClient() as client, client.stream("GET", f"{url}/v1/events") as response:
        await anext(events(response))
        assert engine.live.watched
    await left(engine)


async def left(engine: ScriptedEngine) -> None:
    """Returns when nobody watches; the test's time-out is the limit."""
    while engine.live.watched:
        await asyncio.sleep(0)


async def test_pages_of_other_sites_may_not_watch(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    response = await client.get("/v1/events", headers={"Origin": "https://elsewhere.example"})
    assert response.status_code == 403
    assert not engine.live.watched


async def test_a_request_carries_its_ids(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    headers = {"X-Request-Id": "mine-1", "X-Viewer": "secret"}
    answer = await client.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.json()["id"] == answer.headers["x-request-id"] == "chatcmpl-mine-1"
    assert (engine.requests[0].id, engine.requests[0].viewer) == ("chatcmpl-mine-1", "secret")


async def test_shutting_down_does_not_wait_for_viewers(engine: ScriptedEngine) -> None:
    """The page keeps its stream open for as long as it is there."""
    async with httpx.AsyncClient() as client, listening(engine) as url:
        request = client.build_request("GET", f"{url}/v1/events")
        response = await client.send(request, stream=True)
        stream = events(response)
        await anext(stream)
        engine.live.close()
        assert [event async for event in stream] == []
        await response.aclose()
