"""Responses that are stored: conversations that go on from one, who may, and for how long."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from callers import ANNE, BEN, bearer
from hypothesis import given, settings
from odd_answers import ANSWERS, saying
from refusals import error_of
from responses_requests import FLAT_TOOLS, FULL, PATH, TEXT, respond
from scripted import ScriptedEngine, pausing
from scripted_app import connected, listening
from weather_tools import answering

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.api import Delta, GenerateRequest

MIB = 1 << 20


def check_missing(response: httpx.Response, id: str, reason: str, param: str | None = None) -> None:
    assert response.status_code == 404
    error = error_of(response)
    assert (error["code"], error["param"]) == ("response_not_found", param)
    assert f"`{id}`" in error["message"]
    assert reason in error["message"]


async def check_gone(client: httpx.AsyncClient, id: str, reason: str, **headers: str) -> None:
    """Check that nobody can get, delete or go on from a response, and why."""
    check_missing(await client.get(f"{PATH}/{id}", headers=headers), id, reason)
    check_missing(await client.delete(f"{PATH}/{id}", headers=headers), id, reason)
    body = {"input": "a", "previous_response_id": id}
    check_missing(await client.post(PATH, json=body, headers=headers), id, reason, "previous_response_id")


# Conversations


async def test_a_chain_that_leads_back_to_itself_ends(client: httpx.AsyncClient) -> None:
    id = f"resp_{'a' * 32}"
    begun = {"X-Token-Marks": "1", "X-Begun-Id": id}
    await client.post(PATH, json={"input": "a", "resume": []}, headers=begun)
    second = (await respond(client, "b", id))["id"]
    many = [{"role": "user", "content": "c"}] * 1001  # that are read beside the event loop
    body = {"input": many, "resume": [], "previous_response_id": second}
    third, _ = await asyncio.gather(client.post(PATH, json=body, headers=begun), client.delete(f"{PATH}/{id}"))
    assert (third.status_code, third.json()["id"]) == (200, id)
    response = await client.post(PATH, json={"input": "d", "previous_response_id": id})
    check_missing(response, id, "leads back to itself", "previous_response_id")


async def test_a_chain_is_the_whole_conversation() -> None:
    engine = answering(FULL)
    async with connected(engine) as client:
        items: list[Any] = []
        previous = None
        picture = {"type": "input_image", "image_url": "data:image/png;base64,aaaa"}
        for turn in ["Rain?", [{"role": "user", "content": [picture]}], "And now?"]:
            own: Any = [{"role": "user", "content": turn}] if isinstance(turn, str) else turn
            calls = [item["call_id"] for item in items if item.get("type") == "function_call"][-1:]
            own = [*({"type": "function_call_output", "call_id": id, "output": "rain"} for id in calls), *own]
            options = {"instructions": f"Be brief, {len(items)}.", "tools": FLAT_TOOLS}
            chained = await respond(client, own, previous, **options)
            whole = await respond(client, [*items, *own], store=False, **options)
            one, other = engine.requests[-2:]
            assert one.messages == other.messages
            assert one.template == other.template
            assert [each.data for each in one.media] == [each.data for each in other.media]
            assert (chained["previous_response_id"], whole["previous_response_id"]) == (previous, None)
            items = [*items, *own, *chained["output"]]
            previous = chained["id"]
    assert len(engine.requests[-1].messages) == 8


@settings(max_examples=30)
@given(answer=ANSWERS)
async def test_any_answer_can_be_gone_on_from(answer: str) -> None:
    async with connected(saying(answer)) as client:
        for stream in (False, True):
            body = {"input": "Rain?", "tools": FLAT_TOOLS, "stream": stream}
            response = await client.post(PATH, json=body)
            id = response.text.partition('"id":"')[2].partition('"')[0]
            assert (await respond(client, "So?", id))["previous_response_id"] == id


async def test_a_response_that_goes_on_here_is_stored_under_the_id_that_its_reader_has(
    client: httpx.AsyncClient,
) -> None:
    id = "resp_" + "0a" * 16

    async def ids(**headers: str) -> set[str]:
        body = {"input": "Rain?", "stream": True, "resume": []}
        events = (await client.post(PATH, json=body, headers=headers)).text
        return set(re.findall('"id":"(resp_[0-9a-f]{32})"', events))

    assert await ids(**{"X-Begun-Id": id}) != {id}  # which no router says
    assert await ids(**{"X-Begun-Id": id, "X-Token-Marks": "1"}) == {id}
    assert (await client.get(f"{PATH}/{id}")).status_code == 200
    assert await ids(**{"X-Begun-Id": id, "X-Token-Marks": "1"}) != {id}  # it is another's by now
    assert await ids(**{"X-Begun-Id": "resp_1", "X-Token-Marks": "1"}) != {"resp_1"}


async def test_calls_have_the_same_ids_wherever_a_response_goes_on() -> None:
    headers = {"X-Begun-Id": "resp_" + "0a" * 16, "X-Token-Marks": "1"}
    body = {"input": "Rain?", "tools": FLAT_TOOLS, "stream": True, "resume": []}
    found = set[str]()
    for _ in range(2):
        async with connected(answering(FULL)) as client:
            found |= set(re.findall('"call_id":"([^"]+)"', (await client.post(PATH, json=body, headers=headers)).text))
    (id,) = found
    assert re.fullmatch("call_[0-9a-f]{24}", id)


async def test_a_branch_goes_on_from_an_earlier_response(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    first = (await respond(client, "one"))["id"]
    for _ in range(2):
        await respond(client, "two", first)
    assert engine.requests[1].messages == engine.requests[2].messages
    assert [message["role"] for message in engine.requests[2].messages] == ["user", "assistant", "user"]


async def test_the_openai_client_goes_on_gets_and_deletes(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        first = await client.responses.create(model="scripted", input="Hi")
        async with client.responses.stream(model="scripted", input="So?", previous_response_id=first.id) as stream:
            second = await stream.get_final_response()
        assert (second.previous_response_id, second.output_text) == (first.id, TEXT)
        assert (await client.responses.retrieve(second.id)).output_text == TEXT
        await client.responses.delete(second.id)
        with pytest.raises(openai.NotFoundError, match="was deleted"):
            await client.responses.retrieve(second.id)
        third = await client.responses.create(model="scripted", input="So?", previous_response_id=first.id)
        assert third.output_text == TEXT


async def test_a_response_is_there_from_its_last_event_on() -> None:
    going_on = asyncio.Event()
    script = pausing(going_on)
    async with (
        listening(ScriptedEngine(script)) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        async for event in await client.responses.create(model="scripted", input="Hi", stream=True):
            if event.type == "response.created":
                with pytest.raises(openai.NotFoundError, match="still being made"):
                    await client.responses.retrieve(event.response.id)
                going_on.set()
            if event.type == "response.completed":
                assert await client.responses.retrieve(event.response.id) == event.response


# What is not stored


async def test_what_shall_not_be_stored_is_not(client: httpx.AsyncClient) -> None:
    body = {"input": "a", "store": False}
    response = await client.post(PATH, json=body, headers={"X-Request-Id": "one"})
    assert (response.json()["store"], response.json()["id"]) == (False, "resp_one")
    await check_gone(client, "resp_one", "There is no response")


async def test_a_stored_response_is_not_streamed(client: httpx.AsyncClient) -> None:
    id = (await respond(client, "a"))["id"]
    refused = await client.get(f"{PATH}/{id}", params={"stream": True})
    assert refused.status_code == 400
    assert error_of(refused)["param"] == "stream"
    assert (await client.get(f"{PATH}/{id}", params={"stream": False})).status_code == 200


async def test_ids_of_stored_responses_are_not_the_clients(client: httpx.AsyncClient) -> None:
    headers = {"X-Request-Id": "one"}
    ids = [(await client.post(PATH, json={"input": "a"}, headers=headers)).json()["id"] for _ in range(2)]
    assert len({*ids, "resp_one"}) == 3


async def test_an_answer_that_fails_is_not_stored() -> None:
    async def script(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        raise RequestError("a worker died", ErrorKind.UNAVAILABLE)
        yield

    engine = ScriptedEngine(script)
    async with connected(engine) as client:
        assert (await client.post(PATH, json={"input": "a"})).status_code == 503
        await check_gone(client, engine.requests[0].id, "There is no response")


async def test_an_answer_whose_client_leaves_is_not_stored() -> None:
    going_on = asyncio.Event()

    async def script(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        await going_on.wait()
        yield

    engine = ScriptedEngine(script)
    async with listening(engine) as url, httpx.AsyncClient(base_url=url) as client:
        leaving = asyncio.create_task(client.post(PATH, json={"input": "a"}))
        await engine.busy.wait()
        leaving.cancel()
        await engine.idle.wait()
        await check_gone(client, engine.requests[0].id, "There is no response")


async def test_a_server_may_store_none() -> None:
    async with connected(ScriptedEngine(response_store_mib=0)) as client:
        answer = await respond(client, "a")
        assert answer["store"] is False
        await check_gone(client, answer["id"], "There is no response")
        refused = await client.post(PATH, json={"input": "a", "store": True})
        assert (refused.status_code, error_of(refused)["param"]) == (413, "store")
        assert "--response-store-mib" in error_of(refused)["message"]


# Bounds


def picture(size: int) -> list[dict[str, Any]]:
    url = f"data:image/png;base64,{'a' * size}"
    return [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]


async def test_media_count_and_old_responses_make_room() -> None:
    async with connected(ScriptedEngine(response_store_mib=1)) as client:
        ids = [(await respond(client, picture(300_000)))["id"] for _ in range(3)]
        assert (await client.get(f"{PATH}/{ids[0]}")).status_code == 200  # used, so that it is the second's turn to go
        await respond(client, picture(300_000))
        await check_gone(client, ids[1], "make room for others: send the whole conversation")
        for id in (ids[0], ids[2]):
            assert (await client.get(f"{PATH}/{id}")).status_code == 200
        assert (await respond(client, picture(2 * MIB)))["store"] is False
        assert (await client.post(PATH, json={"input": picture(2 * MIB), "store": True})).status_code == 413


async def test_a_chain_that_lost_its_beginning_says_so(client: httpx.AsyncClient) -> None:
    first = (await respond(client, "Hi"))["id"]
    second = (await respond(client, "So?", first))["id"]
    assert (await client.delete(f"{PATH}/{first}")).json() == {"id": first, "object": "response", "deleted": True}
    body = {"input": "a", "previous_response_id": second}
    check_missing(await client.post(PATH, json=body), first, "was deleted", "previous_response_id")


async def test_a_conversation_is_bounded_as_one_body_is() -> None:
    async with connected(ScriptedEngine(max_body_mib=1)) as client:
        first = (await respond(client, picture(600_000)))["id"]
        response = await client.post(PATH, json={"input": picture(600_000), "previous_response_id": first})
        assert (response.status_code, error_of(response)["param"]) == (413, "previous_response_id")
    async with connected(ScriptedEngine()) as client:
        many = [{"role": "user", "content": "a"}] * 20_000
        first = (await respond(client, many))["id"]
        response = await client.post(PATH, json={"input": many, "previous_response_id": first})
        assert response.status_code == 413
        assert "names" in error_of(response)["message"]


async def test_responses_grow_old() -> None:
    async with connected(ScriptedEngine(response_store_seconds=1e-9)) as client:
        await check_gone(client, (await respond(client, "a"))["id"], "nobody used it for 1e-09 s")


# Whose they are


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    (tmp_path / "keys").write_text(f"anne {ANNE}\nben {BEN}\n")
    engine = ScriptedEngine(api_key_file=str(tmp_path / "keys"), response_store_mib=1)
    async with connected(engine) as client:
        yield client


async def test_responses_are_for_the_key_that_they_were_made_with(guarded: httpx.AsyncClient) -> None:
    id = (await guarded.post(PATH, json={"input": "a"}, headers=bearer(ANNE))).json()["id"]
    await check_gone(guarded, id, "There is no response", **bearer(BEN))
    assert (await guarded.delete(f"{PATH}/{id}", headers=bearer(ANNE))).status_code == 200
    await check_gone(guarded, id, "was deleted", **bearer(ANNE))
    await check_gone(guarded, id, "There is no response", **bearer(BEN))


async def test_who_has_most_responses_makes_room_first(guarded: httpx.AsyncClient) -> None:
    own = (await guarded.post(PATH, json={"input": "a"}, headers=bearer(ANNE))).json()["id"]
    for _ in range(9):
        await guarded.post(PATH, json={"input": picture(300_000)}, headers=bearer(BEN))
    assert (await guarded.get(f"{PATH}/{own}", headers=bearer(ANNE))).json()["status"] == "completed"
