"""What a client was sent comes back with its next turn, whole or cut off anywhere, as clients keep it."""

import json
from typing import Any

import httpx
import openai
import pytest
from chat_requests import PATH, stream
from hypothesis import given, settings
from hypothesis import strategies as st
from messages_requests import PATH as MESSAGES
from messages_requests import THEIR_TOOLS, asks, events
from odd_answers import ANSWERS, saying
from openai.lib.streaming.chat import ChatCompletionStreamState
from responses_requests import FLAT_TOOLS
from scripted_app import connected, listening, question
from weather_tools import CALL, TOOLS, wrapped

USER = {"role": "user", "content": "Rain?"}


def gathered(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """One message of all deltas, as clients without a library gather them."""
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, "tool_calls": None, "x": None}
    for part in (chunk["choices"][0]["delta"] for chunk in chunks):
        for name in ("content", "reasoning_content"):
            if part.get(name) is not None:
                message[name] = (message.get(name) or "") + part[name]
        for call in part.get("tool_calls", ()):
            message["tool_calls"] = message["tool_calls"] or []
            if call["index"] == len(message["tool_calls"]):
                message["tool_calls"].append({**call, "function": dict(call["function"])})
            else:
                message["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    return message


def results(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": call["id"], "content": "?"} for call in message.get("tool_calls") or ()]


async def check_taken(client: httpx.AsyncClient, message: dict[str, Any]) -> None:
    response = await client.post(PATH, json={"messages": [USER, message, *results(message), USER], "tools": TOOLS})
    assert response.status_code == 200, response.text


@settings(max_examples=40)
@given(answer=ANSWERS, data=st.data())
async def test_any_chat_answer_is_taken_back(answer: str, data: st.DataObject) -> None:
    async with connected(saying(answer[: data.draw(st.integers(0, len(answer)))])) as client:
        whole = (await client.post(PATH, json=question("Rain?", tools=TOOLS))).json()
        await check_taken(client, whole["choices"][0]["message"])
        chunks = await stream(client, question("Rain?", tools=TOOLS))
        await check_taken(client, gathered(chunks[: data.draw(st.integers(1, len(chunks)))]))


@settings(max_examples=40)
@given(answer=ANSWERS, data=st.data())
async def test_any_items_are_taken_back(answer: str, data: st.DataObject) -> None:
    async with connected(saying(answer[: data.draw(st.integers(0, len(answer)))])) as client:
        body = {"input": "Rain?", "tools": FLAT_TOOLS}
        whole = (await client.post("/v1/responses", json=body)).json()
        text = (await client.post("/v1/responses", json={**body, "stream": True})).text
        stream = [json.loads(event.partition("data: ")[2]) for event in text.split("\n\n")[:-1]]
        begun = [event["item"] for event in stream if event["type"] == "response.output_item.added"]
        for items in (whole["output"], begun, stream[-1]["response"]["output"]):
            calls = [item["call_id"] for item in items if item["type"] == "function_call"]
            outputs = [{"type": "function_call_output", "call_id": call, "output": "?"} for call in calls]
            response = await client.post("/v1/responses", json={"input": [USER, *items, *outputs, USER]})
            assert response.status_code == 200, response.text


def begun_blocks(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks of a stream that may have been cut off, as clients without a library gather them."""
    blocks: list[dict[str, Any]] = []
    written = ""
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
            written = ""
        elif event["type"] == "content_block_delta":
            ((name, value),) = [item for item in event["delta"].items() if item[0] != "type"]
            if name == "partial_json":
                written += value
                blocks[-1]["input"] = parsed(written)
            else:
                blocks[-1][name] += value
    return blocks


def parsed(text: str) -> Any:
    """What a client makes of arguments: their beginning is a text."""
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text


@settings(max_examples=40)
@given(answer=ANSWERS, data=st.data())
async def test_any_blocks_are_taken_back(answer: str, data: st.DataObject) -> None:
    async with connected(saying(answer[: data.draw(st.integers(0, len(answer)))])) as client:
        body = asks("Rain?", tools=THEIR_TOOLS)
        whole = (await client.post(MESSAGES, json=body)).json()
        stream = await events(client, body)
        cut = stream[: data.draw(st.integers(0, len(stream)))]
        for blocks in (whole["content"], begun_blocks(stream), begun_blocks(cut)):
            calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": call, "content": "?"} for call in calls]
            asked = asks("Rain?", blocks, [*results, {"type": "text", "text": "So?"}], tools=THEIR_TOOLS)
            response = await client.post(MESSAGES, json=asked)
            assert response.status_code == 200, response.text


@pytest.mark.parametrize("helper", ["chunks", "dump"])
async def test_the_openai_client_sends_back_what_it_gathered(helper: str) -> None:
    engine = saying(f"I look.{wrapped(CALL)}"[:-25])
    async with (
        listening(engine) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        state: Any = ChatCompletionStreamState(input_tools=TOOLS)  # type: ignore[arg-type]
        asked: dict[str, Any] = {"model": "scripted", "tools": TOOLS}
        async for chunk in await client.chat.completions.create(messages=[USER], stream=True, **asked):
            state.handle_chunk(chunk)
        message = state.current_completion_snapshot.choices[0].message
        (call,) = message.tool_calls
        turns = [
            USER,
            message if helper == "chunks" else message.model_dump(),
            *results({"tool_calls": [{"id": call.id}]}),
        ]
        await client.chat.completions.create(messages=turns, **asked)
    broken = engine.requests[1].messages[1]["tool_calls"][0]["function"]["arguments"]
    assert broken == '{"place": "'


EARLIER = [
    {"role": "assistant", "content": "a", "annotations": [], "refusal": None, "audio": None, "function_call": None},
    {"role": "assistant", "content": None, "refusal": "I will not."},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not."}]},
    {"role": "assistant", "content": "{}", "parsed": {"a": 1}, "tool_calls": None},
    {"role": "assistant", "content": None, "reasoning_content": "hm", "provider_specific_fields": None},
    {
        "role": "assistant",
        "tool_calls": [
            {"id": "a", "index": 0, "type": None, "custom": None, "function": {"name": "f", "arguments": "{"}},
            {"id": "b", "function": {"name": "f", "arguments": "{}", "parsed_arguments": None}},
        ],
    },
]


@pytest.mark.parametrize("message", EARLIER)
async def test_what_other_servers_answered_is_taken(client: httpx.AsyncClient, message: dict[str, Any]) -> None:
    response = await client.post(PATH, json={"messages": [USER, message, USER]})
    assert response.status_code == 200, response.text
