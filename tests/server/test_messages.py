"""Answers of /v1/messages, whole and in events, and what comes to the engine for them."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from chat_requests import PATH as CHAT
from messages_requests import FULL, IMAGE, PATH, TEXT, THEIR_TOOLS, asks, events
from scripted import WORDS, ScriptedEngine, delta
from scripted_app import connected, question
from weather_tools import ARGUMENTS, CALL, OTHER, TOOLS, answering

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.api import Delta, GenerateRequest

COUNT = f"{PATH}/count_tokens"
OUR_TOOLS = [TOOLS[0], {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}}]


async def answer(client: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    response = await client.post(PATH, json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_a_whole_answer(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    body = asks("Hi", model="scripted", system="Be brief.", temperature=0.5, top_k=3, stop_sequences=["x"])
    response = await client.post(PATH, json=body, headers={"X-Request-Id": "one", "anthropic-version": "2023-06-01"})
    assert response.headers["request-id"] == "msg_one"
    assert response.json() == {
        "id": "msg_one",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [{"type": "text", "text": TEXT, "citations": None}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 7,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 4,
            "output_tokens_details": {"thinking_tokens": 0},
        },
    }
    (request,) = engine.requests
    assert request.messages == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_k, sampling.stop) == (9, 0.5, 3, ("x",))


async def test_events_of_a_text(client: httpx.AsyncClient) -> None:
    start, block, *deltas, block_end, end, last = await events(client, asks("Hi"))
    assert (start["type"], start["message"]["content"], start["message"]["usage"]["input_tokens"]) == (
        "message_start",
        [],
        7,
    )
    assert block == {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": "", "citations": None},
    }
    assert [event["delta"] for event in deltas] == [{"type": "text_delta", "text": word} for word in WORDS]
    assert block_end == {"type": "content_block_stop", "index": 0}
    assert end["type"] == "message_delta"
    assert end["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert end["usage"]["output_tokens"] == 4
    assert last == {"type": "message_stop"}


def grown(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the blocks that events make."""
    blocks: list[dict[str, Any]] = []
    written: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            kind, value = next(each for each in event["delta"].items() if each[0] != "type")
            if kind == "partial_json":
                written[event["index"]] = written.get(event["index"], "") + value
            else:
                blocks[event["index"]][kind] += value
    for index, arguments in written.items():
        blocks[index]["input"] = json.loads(arguments)
    return blocks


async def test_thoughts_texts_and_calls_are_blocks() -> None:
    async with connected(answering(FULL)) as client:
        whole = await answer(client, asks("Rain?", tools=THEIR_TOOLS))
        streamed = await events(client, asks("Rain?", tools=THEIR_TOOLS))
    for blocks, reason in ((whole["content"], whole["stop_reason"]), (grown(streamed), streamed[-2]["delta"])):
        thought, text, call, other = blocks
        assert (thought["thinking"], bool(thought["signature"])) == ("Which place?", True)
        assert text["text"] == "I look."
        assert (call["type"], call["name"], call["input"]) == ("tool_use", "weather", CALL["arguments"])
        assert (other["name"], other["input"]) == ("time", {})
        assert "tool_use" in (reason, reason["stop_reason"] if isinstance(reason, dict) else None)
    assert whole["usage"]["output_tokens_details"]["thinking_tokens"] > 0
    pieces = [each["delta"]["partial_json"] for each in streamed if each.get("delta", {}).get("partial_json")]
    assert pieces[0] != ARGUMENTS


@pytest.mark.parametrize(
    ("finish", "stop", "expected"),
    [
        ("length", None, ("max_tokens", None)),
        ("stop", "END", ("stop_sequence", "END")),
        ("stop", 7, ("end_turn", None)),
    ],
)
async def test_why_it_ended(finish: Any, stop: Any, expected: tuple[str, str | None]) -> None:
    async def script(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        last = delta("Well", 1, finish=finish)
        last.stop_reason = stop
        last.cached_tokens = 5
        yield last

    async with connected(ScriptedEngine(script)) as client:
        message = await answer(client, asks("Hi"))
        end = (await events(client, asks("Hi")))[-2]
    assert (message["stop_reason"], message["stop_sequence"]) == expected
    assert tuple(end["delta"].values()) == expected
    assert (message["usage"]["input_tokens"], message["usage"]["cache_read_input_tokens"]) == (2, 5)


SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (asks("Hi"), question("Hi")),
    (asks([{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]), question("Hi")),
    (
        asks("Hi", system=[{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]),
        {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]},
    ),
    (
        asks([{"type": "image", "source": IMAGE}, {"type": "text", "text": "What?"}]),
        question(
            [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}},
                {"type": "text", "text": "What?"},
            ]
        ),
    ),
    (
        asks(
            [
                {"type": "video", "source": {"type": "url", "url": ["data:image/png;base64,aaaa"] * 2}, "fps": 2},
                {"type": "video", "source": {"type": "base64", "media_type": "video/mp4", "data": "bbbb"}},
            ]
        ),
        question(
            [
                {"type": "video_url", "video_url": {"url": ["data:image/png;base64,aaaa"] * 2, "fps": 2}},
                {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,bbbb"}},
            ]
        ),
    ),
    (
        asks("Rain?", tools=THEIR_TOOLS, tool_choice={"type": "any", "disable_parallel_tool_use": True}),
        question("Rain?", tools=OUR_TOOLS, tool_choice="required", parallel_tool_calls=False),
    ),
    (
        asks("Rain?", tools=THEIR_TOOLS, tool_choice={"type": "tool", "name": "time"}),
        question("Rain?", tools=OUR_TOOLS, tool_choice={"type": "function", "function": {"name": "time"}}),
    ),
    (
        asks("Rain?", tools=THEIR_TOOLS, tool_choice={"type": "none"}),
        question("Rain?", tools=OUR_TOOLS, tool_choice="none"),
    ),
    (asks("Hi", thinking={"type": "disabled"}), question("Hi", reasoning_effort="none")),
    (
        asks("Hi", thinking={"type": "enabled", "budget_tokens": 2000}),
        question("Hi", chat_template_kwargs={"enable_thinking": True}),
    ),
    (
        asks("Hi", output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}}),
        question(
            "Hi", response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
        ),
    ),
    (
        asks("Hi", "The answer is ("),
        {
            "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "The answer is ("}],
            "continue_final_message": True,
        },
    ),
    (asks("Hi", []), question("Hi")),
    (
        {
            "max_tokens": 9,
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "user", "content": [{"type": "text", "text": "there"}]},
                {"role": "system", "content": "Be brief."},
            ],
        },
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]},
                {"role": "system", "content": "Be brief."},
            ]
        },
    ),
]


@pytest.mark.parametrize(("body", "chat"), SAME, ids=range(len(SAME)))
async def test_the_engine_is_asked_what_chats_ask(body: dict[str, Any], chat: dict[str, Any]) -> None:
    engine = answering("Well.")
    async with connected(engine) as client:
        await answer(client, body)
        response = await client.post(CHAT, json={**chat, "max_tokens": 9})
        assert response.status_code == 200, response.text
    ours, theirs = engine.requests
    assert ours.messages == theirs.messages
    assert ours.template == theirs.template
    assert ours.sampling == theirs.sampling
    assert [(each.kind, each.data, each.fps) for each in ours.media] == [
        (each.kind, each.data, each.fps) for each in theirs.media
    ]


async def test_answers_and_results_are_sent_back() -> None:
    engine = answering(FULL)
    async with connected(engine) as client:
        first = await answer(client, asks("Rain?", tools=THEIR_TOOLS))
        _, _, call, other = first["content"]
        shown = [{"type": "text", "text": "rain: "}, {"type": "image", "source": IMAGE}]
        results = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": "rain", "is_error": False},
            {"type": "tool_result", "tool_use_id": other["id"], "content": shown},
            {"type": "text", "text": "So?"},
        ]
        await answer(client, asks("Rain?", first["content"], results, tools=THEIR_TOOLS))
    user, assistant, result, picture, last = engine.requests[1].messages
    assert user == {"role": "user", "content": "Rain?"}
    assert (assistant["content"], assistant["reasoning_content"]) == ("I look.", "Which place?")
    assert [each["function"] for each in assistant["tool_calls"]] == [CALL, OTHER]
    assert result == {"role": "tool", "content": "rain", "tool_call_id": call["id"]}
    assert picture["content"] == [{"type": "text", "text": "rain: "}, {"type": "image"}]
    assert last == {"role": "user", "content": "So?"}


async def test_tokens_are_counted_as_the_model_reads_them(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    body = asks("Hi", "Well", "é?", system="Be brief.")
    del body["max_tokens"]
    counted = (await client.post(COUNT, json=body)).json()
    text = "system:Be brief.\nuser:Hi\nassistant:Well\nuser:é?\nassistant:"
    assert counted == {"input_tokens": len(text.encode())}
    shown = await client.post(COUNT, json={"messages": asks([{"type": "image", "source": IMAGE}])["messages"]})
    assert shown.json() == {"input_tokens": 7}, "the engine plans what has media"
    assert [len(request.media) for request in engine.plans] == [1]
    assert engine.requests == []


async def test_openapi_describes_it(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    operation = document["paths"][PATH]["post"]
    assert operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/MessagesRequest")
    refused = operation["responses"]["4XX"]["content"]["application/json"]["schema"]["$ref"]
    assert refused.endswith("/AnthropicErrorBody")
    assert {"type", "error"} == document["components"]["schemas"]["AnthropicErrorBody"]["properties"].keys()
    assert COUNT in document["paths"]


# Errors


def check_error(response: httpx.Response, status: int, type: str, *words: str) -> None:
    assert response.status_code == status
    body = response.json()
    assert set(body) == {"type", "error"}
    assert (body["type"], body["error"]["type"]) == ("error", type)
    assert set(body["error"]) == {"type", "message"}
    for word in words:
        assert word in body["error"]["message"]


USER = {"role": "user", "content": "a"}
CALLS = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({}, "`messages`", "missing"),
    ({"messages": [USER]}, "`max_tokens`", "missing"),
    (asks("Hi", max_tokens=0), "`max_tokens`", ">= 1"),
    ({"messages": [], "max_tokens": 1}, "`messages`", "length >= 1"),
    ({"messages": [{"role": "tool", "content": "a"}], "max_tokens": 1}, "`messages[0].role`", "tool"),
    ({"messages": [{"role": "assistant", "content": []}], "max_tokens": 1}, "`messages[0]`", "says nothing"),
    ({"messages": [USER, CALLS], "max_tokens": 1}, "`messages[1]`", "results"),
    (asks([]), "`messages[0].content`", "length >= 1"),
    (
        asks([{"type": "document"}]),
        "`messages[0].content[0].type`",
        "'document' is none of the allowed values, 'text', 'image', 'video', 'tool_result'.",
    ),
    (
        asks([{"type": "tool_use", "id": "c", "name": "f", "input": {}}]),
        "`messages[0].content[0].type`",
        "'tool_use' is none",
    ),
    (asks([{"type": "text", "text": "a", "txt": 1}]), "`messages[0].content[0].txt`", "`text`"),
    (
        asks([{"type": "image", "source": {**IMAGE, "media_type": "image/png;x"}}]),
        "`messages[0].content[0].source.media_type`",
        "expected the type of an image or a video, like image/png.",
    ),
    (
        asks([{"type": "image", "source": {"type": "file", "file_id": "https://example.com/a.png"}}]),
        "`messages[0].content[0].source.file_id`",
        "expected the id of an uploaded file, which begins with file-",
    ),
    (
        asks([{"type": "text", "text": "a"}, {"type": "image", "source": {**IMAGE, "data": "!"}}], system="b"),
        "messages[0].content[1]",
        "base64",
    ),
    (
        asks(
            "a",
            CALLS["content"],
            [
                {
                    "type": "tool_result",
                    "tool_use_id": "c",
                    "content": [{"type": "image", "source": {"type": "url", "url": "x"}}],
                }
            ],
        ),
        "messages[2].content[0].content[0]",
        "data:",
    ),
    (asks("a", tools=[{"type": "web_search_20250305", "name": "s"}]), "`tools[0].type`", "web_search"),
    (asks("a", tool_choice={"type": "any"}), "tool_choice", "`tools`"),
    (asks("a", output_config={"effort": "max"}), "`output_config.effort`", "not supported"),
    (asks("a", thinking={"type": "enabled", "display": "omitted"}), "`thinking.display`", "omitted"),
    (asks("a", stop_sequences=[""]), "stop_sequences", "empty"),
    (asks("a", container="x"), "`container`", "not supported"),
    (asks("a", temprature=1), "`temprature`", "`temperature`"),
]


@pytest.mark.parametrize(("body", "place", "reason"), BAD)
async def test_field_and_reason_are_named(
    client: httpx.AsyncClient, engine: ScriptedEngine, body: dict[str, Any], place: str, reason: str
) -> None:
    check_error(await client.post(PATH, json=body), 400, "invalid_request_error", place, reason)
    assert engine.requests == []


async def test_other_failures_have_the_same_shape(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    check_error(await client.get(PATH), 405, "invalid_request_error")
    check_error(await client.post(f"{PATH}/nothing", json={}), 404, "not_found_error")
    check_error(await client.post(PATH, json=asks("a", model="claude")), 404, "not_found_error", "claude")
    old = {"anthropic-version": "2023-01-01"}
    check_error(await client.post(PATH, json=asks("a"), headers=old), 400, "invalid_request_error", "2023-06-01")
    check_error(await client.post(PATH, json=asks("a"), headers={"Host": "x.example"}), 403, "permission_error")
    engine.full = RequestError("full", ErrorKind.BUSY, retry_after=3)
    response = await client.post(PATH, json=asks("a"))
    check_error(response, 429, "rate_limit_error", "full")
    assert response.headers["retry-after"] == "3"


async def test_a_stream_that_fails_says_why() -> None:
    async def script(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        yield delta("Well", 1)
        raise RequestError("a frame is broken", ErrorKind.UNAVAILABLE, param="messages[1].content[0]")

    async with connected(ScriptedEngine(script)) as client:
        *_, last = await events(client, asks([{"type": "image", "source": IMAGE}], system="a"))
    assert last == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "messages[0].content[0]: a frame is broken"},
    }


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    (tmp_path / "keys").write_text("anne sk-anne-0123456789\n")
    async with connected(ScriptedEngine(api_key_file=str(tmp_path / "keys"))) as client:
        yield client


async def test_keys_come_in_anthropics_header(guarded: httpx.AsyncClient) -> None:
    for headers in ({}, {"x-api-key": "sk-nobody-0123456789"}, {"x-api-key": ""}):
        check_error(await guarded.post(PATH, json=asks("a"), headers=headers), 401, "authentication_error")
    assert (await guarded.post(PATH, json=asks("a"), headers={"x-api-key": "sk-anne-0123456789"})).status_code == 200


async def test_a_conversation_of_many_blocks_and_calls_is_soon_read(client: httpx.AsyncClient) -> None:
    texts = [{"type": "text", "text": "a"}] * 16_000
    calls = [{"type": "tool_use", "id": "c", "name": "f", "input": {}}] * 500
    results = [{"type": "tool_result", "tool_use_id": "c"}] * 500
    await answer(client, asks(texts, [*texts[:5000], *calls], results))
