"""Answers of /v1/responses, as the openai client reads them; what of the API is refused."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import ResponseFunctionToolCall, ResponseReasoningItem
from refusals import check_refused
from responses_requests import FLAT_TOOLS, FULL, PATH, TEXT
from scripted import WORDS, ScriptedEngine, delta
from scripted_app import connected, listening
from weather_tools import ARGUMENTS, CALL, TOOLS, answering

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.api import Delta, GenerateRequest


@pytest.fixture
async def openai_client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


async def events_of(client: openai.AsyncOpenAI, **body: Any) -> list[Any]:
    stream = await client.responses.create(model="scripted", stream=True, **body)
    return [event async for event in stream]


async def test_whole_answer(openai_client: openai.AsyncOpenAI, engine: ScriptedEngine) -> None:
    answer = await openai_client.responses.create(
        model="scripted", input="Hi", instructions="Be brief.", max_output_tokens=9, temperature=0.5, store=False
    )
    assert (answer.output_text, answer.status, answer.object) == (TEXT, "completed", "response")
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens) == (7, 4, 11)
    assert (answer.instructions, answer.max_output_tokens, answer.temperature) == ("Be brief.", 9, 0.5)
    (request,) = engine.requests
    assert request.messages == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert (request.sampling.max_tokens, request.sampling.temperature) == (9, 0.5)


async def test_events_of_a_text(openai_client: openai.AsyncOpenAI) -> None:
    events = await events_of(openai_client, input="Hi")
    assert [event.type.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * len(WORDS),
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.delta for event in events if event.type == "response.output_text.delta"] == WORDS
    assert events[3].part.text == ""
    assert events[2].item.content == []
    assert events[-2].item == events[-1].response.output[0]
    assert events[-1].response.output_text == TEXT
    assert events[0].response.status == "in_progress"


async def test_thoughts_text_and_calls_are_items() -> None:
    async with (
        listening(answering(FULL)) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        body: dict[str, Any] = {"input": "Rain?", "tools": FLAT_TOOLS}
        whole = await client.responses.create(model="scripted", **body)
        streamed = (await events_of(client, **body))[-1].response
        async with client.responses.stream(model="scripted", **body) as stream:
            pieces = [event async for event in stream if event.type == "response.function_call_arguments.delta"]
            gathered = await stream.get_final_response()
    for response in (whole, streamed, gathered):
        thought, message, call = response.output
        assert isinstance(thought, ResponseReasoningItem)
        assert thought.content[0].text == "Which place?"
        assert message.content[0].text == "I look."
        assert isinstance(call, ResponseFunctionToolCall)
        assert (call.name, call.arguments, call.status) == ("weather", ARGUMENTS, "completed")
        assert response.usage.output_tokens_details.reasoning_tokens > 0
    assert "".join(piece.delta for piece in pieces) == ARGUMENTS
    assert len(pieces) > 2


async def test_answers_and_results_are_sent_back() -> None:
    engine = answering(FULL)
    async with (
        listening(engine) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        first = await client.responses.create(model="scripted", input="Rain?", tools=FLAT_TOOLS)
        call_id = first.output[-1].call_id
        turns: list[Any] = [{"role": "user", "content": "Rain?"}, *first.output]
        turns.append({"type": "function_call_output", "call_id": call_id, "output": "rain"})
        await client.responses.create(model="scripted", input=turns, tools=FLAT_TOOLS)
    user, assistant, tool = engine.requests[1].messages
    assert user == {"role": "user", "content": "Rain?"}
    assert assistant["content"] == [{"type": "text", "text": "I look."}]
    assert assistant["reasoning_content"] == "Which place?"
    assert assistant["tool_calls"] == [{"id": call_id, "type": "function", "function": CALL}]
    assert tool == {"role": "tool", "content": "rain", "tool_call_id": call_id}
    assert engine.requests[1].template["tools"] == TOOLS


async def test_media_schemas_and_choices_reach_the_engine(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    content = [
        {"type": "input_text", "text": "What?"},
        {"type": "input_image", "image_url": "data:image/png;base64,aaaa", "detail": "auto"},
        {"type": "input_video", "video_url": "data:video/mp4;base64,bbbb"},
    ]
    schema = {"type": "json_schema", "name": "a", "schema": {"type": "object"}, "strict": True}
    body = {"input": [{"role": "user", "content": content}], "text": {"format": schema}, "priority": 3}
    assert (await client.post(PATH, json=body)).status_code == 200
    (request,) = engine.requests
    assert [part["type"] for part in request.messages[0]["content"]] == ["text", "image", "video"]
    assert [medium.kind for medium in request.media] == ["image", "video"]
    assert request.sampling.grammar is not None
    assert request.priority == 3


async def test_files_and_pictures_of_tools_reach_the_engine(engine: ScriptedEngine) -> None:
    async with (
        listening(engine) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        file = await client.files.create(file=("a.png", b"pixels"), purpose="vision")
        shown: list[Any] = [{"type": "input_text", "text": "Here: "}, {"type": "input_image", "file_id": file.id}]
        turns: list[Any] = [
            {"role": "user", "content": [{"type": "input_image", "file_id": file.id, "detail": "auto"}]},
            {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": shown},
        ]
        await client.responses.create(model="scripted", input=turns)
    (request,) = engine.requests
    assert [medium.data for medium in request.media] == [b"pixels"] * 2
    assert request.messages[-1]["role"] == "tool"
    assert request.messages[-1]["content"] == [{"type": "text", "text": "Here: "}, {"type": "image"}]


async def test_an_answer_cut_off_is_incomplete() -> None:
    async def script(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        yield delta("Well", 1, finish="length")

    async with connected(ScriptedEngine(script)) as client:
        answer = (await client.post(PATH, json={"input": "Hi", "max_output_tokens": 1})).json()
    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["output"][0]["status"] == "incomplete"


async def test_a_stream_that_fails_says_why() -> None:
    async def script(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        yield delta("Well", 1)
        raise RequestError("a worker died", ErrorKind.UNAVAILABLE)

    async with connected(ScriptedEngine(script)) as client:
        response = await client.post(PATH, json={"input": "Hi", "stream": True})
    *_, last, end = response.text.split("\n\n")
    name, data = last.split("\n")
    assert (name, end) == ("event: response.failed", "")
    error = json.loads(data.removeprefix("data: "))["response"]["error"]
    assert error == {"code": "server_error", "message": "a worker died"}


USER = {"role": "user", "content": "a"}
CALLED = [USER, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]
RESULT = {"type": "function_call_output", "call_id": "c"}
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({}, "input", "missing"),
    ({"input": []}, "input", "length >= 1"),
    ({"input": [{"role": "robot", "content": "a"}]}, "input[0].role", "robot"),
    ({"input": [USER, {"role": "user"}]}, "input[1].content", "missing"),
    ({"input": [{"type": "web_search_call"}]}, "input[0].type", "web_search_call"),
    (
        {
            "input": [
                USER,
                {"role": "user", "content": [{"type": "input_image", "file_id": "data:image/png;base64,AA=="}]},
            ]
        },
        "input[1].content[0].file_id",
        "expected the id of an uploaded file, which begins with file-",
    ),
    ({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "input[0].content[0].type", "input_audio"),
    ({"input": [USER | {"contents": "a"}]}, "input[0].contents", "`content`"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]", "`file_id`"),
    ({"input": [USER, {"role": "user", "content": [{"type": "input_file"}]}]}, "input[1].content[0]", "`file_url`"),
    (
        {
            "instructions": "b",
            "input": [USER, {"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}],
        },
        "input[1].content[0]",
        "data:",
    ),
    (
        {"input": [*CALLED, {**RESULT, "output": [{"type": "input_text", "text": "a"}, {"type": "input_image"}]}]},
        "input[2].output[1]",
        "`image_url`",
    ),
    ({"input": "a", "conversation": "conv_1"}, "conversation", "not supported"),
    ({"input": "a", "conversation": {"id": "conv_1"}}, "conversation", "not supported"),
    ({"input": "a", "prompt": {"id": "pmpt_1"}}, "prompt", "not supported"),
    ({"input": "a", "background": True}, "background", "not supported"),
    ({"input": "a", "reasoning": {"effort": "low"}}, "reasoning.effort", "`reasoning.effort` can"),
    ({"input": "a", "include": ["message.output_text.logprobs"]}, "include[0]", "logprobs"),
    ({"input": "a", "tools": [{"type": "web_search"}]}, "tools[0].type", "web_search"),
    ({"input": "a", "tool_choice": "required"}, "tool_choice", "`tools`"),
    ({"input": "a", "max_tokens": 3}, "max_tokens", "`max_output_tokens`"),
    ({"messages": [USER]}, "messages", "`input`"),
    ({"input": "a", "text": {"format": {"type": "xml"}}}, "text.format.type", "xml"),
]


@pytest.mark.parametrize(("body", "param", "hint"), BAD)
async def test_field_and_reason_are_named(
    client: httpx.AsyncClient, engine: ScriptedEngine, body: dict[str, Any], param: str, hint: str
) -> None:
    await check_refused(client, engine, PATH, body, param, hint)
