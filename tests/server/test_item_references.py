"""References to items of stored responses: what they stand for, whose they are, and how much they may be."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from callers import ANNE, BEN, bearer
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_answers import ANSWERS, saying
from refusals import error_of
from responses_requests import FLAT_TOOLS, FULL, PATH, TEXT, respond
from scripted import ScriptedEngine, pausing
from scripted_app import connected, listening
from weather_tools import answering

from unifiedserve.messages.api import GenerateRequest


def reference(id: str) -> dict[str, Any]:
    return {"type": "item_reference", "id": id}


REFERENCES = [reference, lambda id: {"type": None, "id": id}, lambda id: {"id": id}]


def check_same(one: GenerateRequest, other: GenerateRequest) -> None:
    assert one.messages == other.messages
    assert one.template == other.template


async def check_missing(client: httpx.AsyncClient, id: str, reason: str, **headers: str) -> None:
    """Check that a reference, the second item of its request, is refused, and why."""
    body = {"input": [{"role": "user", "content": "a"}, reference(id)]}
    response = await client.post(PATH, json=body, headers=headers)
    assert response.status_code == 404
    error = error_of(response)
    assert (error["code"], error["param"]) == ("item_not_found", "input[1]")
    assert error["message"].startswith(f"`input[1]` refers to the item `{id[:30]}")
    assert reason in error["message"]


# What they stand for


@settings(max_examples=25)
@given(answer=ANSWERS, data=st.data())
async def test_a_conversation_by_references_is_the_conversation_in_full(answer: str, data: st.DataObject) -> None:
    engine = saying(answer)
    async with connected(engine) as client:
        items: list[Any] = [{"role": "user", "content": "Rain?"}]
        references = items.copy()
        for _ in range(2):
            output = (await respond(client, references, tools=FLAT_TOOLS))["output"]
            more = [{"role": "user", "content": "And now?"}, *data.draw(st.permutations([*output, *output[:1]]))]
            items += more
            for item in more:
                refer = data.draw(st.sampled_from([*REFERENCES, None])) if "id" in item else None
                references.append(refer(item["id"]) if refer else item)
        await respond(client, items, tools=FLAT_TOOLS, store=False)
        await respond(client, references, tools=FLAT_TOOLS)
        check_same(*engine.requests[-2:])


async def test_items_of_several_responses_in_any_order() -> None:
    engine = answering(FULL)
    async with connected(engine) as client:
        first, second = [(await respond(client, "Rain?", tools=FLAT_TOOLS))["output"] for _ in range(2)]
        kinds = [item["type"] for item in first]
        assert kinds == ["reasoning", "message", "function_call"]
        items = [second[1], {"role": "user", "content": "So?"}, first[2], second[0], first[1], second[1]]
        await respond(client, items, tools=FLAT_TOOLS, store=False)
        await respond(client, [reference(i["id"]) if "id" in i else i for i in items], tools=FLAT_TOOLS)
        check_same(*engine.requests[-2:])


async def test_the_openai_client_refers_to_items_whole_or_streamed(url: str, engine: ScriptedEngine) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        async with client.responses.stream(model="scripted", input="Hi") as stream:
            first = await stream.get_final_response()
        second = await client.responses.create(
            model="scripted",
            input=[
                {"role": "user", "content": "Hi"},
                {"type": "item_reference", "id": first.output[0].id or ""},
                {"role": "user", "content": "So?"},
            ],
        )
    assert second.output_text == TEXT
    assert [message["role"] for message in engine.requests[1].messages] == ["user", "assistant", "user"]
    assert engine.requests[1].messages[1]["content"] == [{"type": "text", "text": TEXT}]


async def test_a_response_keeps_what_its_request_referred_to(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    first = await respond(client, "one")
    second = await respond(client, [reference(first["output"][0]["id"])])
    await client.delete(f"{PATH}/{first['id']}")
    await respond(client, "three", second["id"])
    said = [{"type": "text", "text": TEXT}]
    assert [message["content"] for message in engine.requests[-1].messages] == [said, said, "three"]


async def test_ids_of_items_are_never_the_same(client: httpx.AsyncClient) -> None:
    headers = {"X-Request-Id": "one"}
    ids = set()
    for store in (True, True, False, False):
        response = await client.post(PATH, json={"input": "a", "store": store}, headers=headers)
        ids.add(response.json()["output"][0]["id"])
    assert len(ids) == 4


# Those that stand for nothing


@pytest.mark.parametrize("id", ["", "msg_1", "resp_1", "msg_é", "a" * 100_000, f"msg_{'0' * 32}_0"])
async def test_ids_that_are_no_items(client: httpx.AsyncClient, id: str) -> None:
    await check_missing(client, id, ": send the whole conversation" if id.endswith("_0") else "Send the item itself.")


async def test_items_that_are_gone_say_why() -> None:
    async with connected(ScriptedEngine(response_store_mib=1)) as client:
        first, second = [await respond(client, "a" * 300_000) for _ in range(2)]
        await client.delete(f"{PATH}/{first['id']}")
        await check_missing(client, first["output"][0]["id"], "was deleted: send the whole conversation")
        await check_missing(
            client, second["id"].replace("resp", "msg") + "_9", "has no such item: send the item itself"
        )
        for _ in range(3):
            await respond(client, "a" * 300_000)
        await check_missing(client, second["output"][0]["id"], "was dropped, because it had to make room")
        unkept = await respond(client, "a", store=False)
        await check_missing(client, unkept["output"][0]["id"], "There is no response")


async def test_an_item_of_an_answer_that_is_being_made() -> None:
    going_on = asyncio.Event()
    script = pausing(going_on)
    async with (
        listening(ScriptedEngine(script)) as url,
        httpx.AsyncClient(base_url=url) as other,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        async for event in await client.responses.create(model="scripted", input="Hi", stream=True):
            if event.type == "response.output_item.added":
                await check_missing(other, event.item.id or "", "is still being made: wait for its end")
                going_on.set()


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "item_reference"}, "input[0].id"),
        ({"type": "item_reference", "id": None}, "input[0].id"),
        ({"id": 1}, "input[0].id"),
        ({"type": "item_reference", "id": "msg_1", "content": "a"}, "input[0].content"),
        ({"id": "msg_1", "content": "a"}, "input[0].role"),
        ({"type": None}, "input[0].type"),
    ],
)
async def test_malformed_references(client: httpx.AsyncClient, item: dict[str, Any], param: str) -> None:
    response = await client.post(PATH, json={"input": [item]})
    assert (response.status_code, error_of(response)["param"]) == (400, param)


async def test_items_are_for_the_key_that_they_were_made_with(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"anne {ANNE}\nben {BEN}\n")
    async with connected(ScriptedEngine(api_key_file=str(tmp_path / "keys"))) as client:
        response = await client.post(PATH, json={"input": "a"}, headers=bearer(ANNE))
        id = response.json()["output"][0]["id"]
        await check_missing(client, id, "There is no response", **bearer(BEN))
        response = await client.post(PATH, json={"input": [reference(id)]}, headers=bearer(ANNE))
        assert response.status_code == 200


# How much they may be


async def test_the_bytes_of_what_they_stand_for_are_bounded_as_those_of_a_body() -> None:
    async with connected(answering("a" * 3000, max_body_mib=1)) as client:
        id = (await respond(client, "a"))["output"][0]["id"]
        before = (await respond(client, [reference(id)] * 300))["id"]
        for count, previous, param in [(400, None, "input[3"), (300, before, "previous_response_id")]:
            response = await client.post(
                PATH, json={"input": [reference(id)] * count, "previous_response_id": previous}
            )
            assert (response.status_code, error_of(response)["code"]) == (413, "request_too_large")
            assert error_of(response)["param"].startswith(param)
            assert "--max-body-mib" in error_of(response)["message"]


async def test_what_they_stand_for_must_fit_into_the_store() -> None:
    async with connected(answering("a" * 3000, response_store_mib=1)) as client:
        id = (await respond(client, "a"))["output"][0]["id"]
        body = {"input": [reference(id)] * 400}
        assert (await respond(client, **body))["store"] is False
        response = await client.post(PATH, json={**body, "store": True})
        assert (response.status_code, error_of(response)["param"]) == (413, "store")


async def test_the_names_of_what_they_stand_for_are_bounded_as_those_of_a_body(client: httpx.AsyncClient) -> None:
    item = (await respond(client, "a"))["output"][0]
    response = await client.post(PATH, json={"input": [reference(item["id"])] * 7000})
    assert response.status_code == 413
    assert f"{7000 * 9} names" in error_of(response)["message"]
