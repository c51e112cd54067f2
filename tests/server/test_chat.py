"""Answers of /v1/chat/completions, whole and streamed."""

from typing import Any

import httpx
import pytest
from chat_requests import PATH, TEXT, stream
from scripted import WORDS, ScriptedEngine
from scripted_app import connected, question, usage


async def test_whole_answer(client: httpx.AsyncClient) -> None:
    response = await client.post(PATH, json=question(model="scripted"))
    answer = response.json()
    assert response.status_code == 200
    assert answer["object"] == "chat.completion"
    assert answer["id"] == response.headers["x-request-id"]
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": TEXT, "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
            "token_ids": None,
        }
    ]
    assert answer["usage"] == usage(7, 4)


async def test_stream_is_role_then_tokens_then_finish(client: httpx.AsyncClient) -> None:
    chunks = await stream(client, question())
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas == [{"role": "assistant", "content": ""}, *({"content": word} for word in WORDS), {}]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 5 + ["stop"]
    assert all(chunk["usage"] is None for chunk in chunks)


async def test_usage_chunk_comes_last_and_has_no_choices(client: httpx.AsyncClient) -> None:
    *chunks, last = await stream(client, question(stream_options={"include_usage": True}))
    assert last["choices"] == []
    assert last["usage"] == usage(7, 4)
    assert all(chunk["choices"] and chunk["usage"] is None for chunk in chunks)


async def test_continuous_usage_counts_up(client: httpx.AsyncClient) -> None:
    chunks = await stream(client, question(stream_options={"continuous_usage_stats": True}))
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [0, 1, 2, 3, 4, 4]


async def test_several_answers_keep_apart(client: httpx.AsyncClient) -> None:
    whole = (await client.post(PATH, json=question(n=3))).json()
    assert [(choice["index"], choice["message"]["content"]) for choice in whole["choices"]] == [
        (0, TEXT),
        (1, TEXT),
        (2, TEXT),
    ]
    assert whole["usage"]["completion_tokens"] == 12
    texts = {0: "", 1: "", 2: ""}
    finished = []
    for chunk in await stream(client, question(n=3)):
        choice = chunk["choices"][0]
        texts[choice["index"]] += choice["delta"].get("content", "")
        if choice["finish_reason"]:
            finished.append(choice["index"])
    assert texts == {0: TEXT, 1: TEXT, 2: TEXT}
    assert finished == [0, 1, 2]


async def test_logprobs(client: httpx.AsyncClient) -> None:
    answer = (await client.post(PATH, json=question(logprobs=True, top_logprobs=2))).json()
    entries = answer["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == ["A", "B", "C", "D"]
    assert entries[0]["logprob"] == -0.5
    assert entries[0]["bytes"] == [65]
    assert entries[0]["top_logprobs"][1] == {"token": "\ufffd", "logprob": -1.5, "bytes": [200]}
    chunks = await stream(client, question(logprobs=True))
    streamed = [c["choices"][0]["logprobs"] for c in chunks if c["choices"][0]["logprobs"]]
    assert [entry["token"] for logprobs in streamed for entry in logprobs["content"]] == ["A", "B", "C", "D"]


async def test_prompt_logprobs(client: httpx.AsyncClient) -> None:
    answer = (await client.post(PATH, json=question(prompt_logprobs=1, n=2))).json()
    opening, *entries = answer["prompt_logprobs"]
    assert opening is None
    assert all(entry["122"] == {"logprob": -0.25, "rank": 1, "decoded_token": "z"} for entry in entries)
    assert "prompt_logprobs" not in (await client.post(PATH, json=question())).json()


async def test_token_ids_if_asked_for(client: httpx.AsyncClient) -> None:
    answer = (await client.post(PATH, json=question(return_token_ids=True))).json()
    assert answer["choices"][0]["token_ids"] == [65, 66, 67, 68]
    chunks = await stream(client, question(return_token_ids=True))
    streamed = [token for chunk in chunks for token in chunk["choices"][0]["token_ids"] or []]
    assert streamed == [65, 66, 67, 68]


async def test_fields_reach_the_engine(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    body = question(
        max_completion_tokens=9,
        min_tokens=2,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        n=2,
        seed=-3,
        presence_penalty=1,
        frequency_penalty=-1,
        repetition_penalty=1.1,
        stop="END",
        stop_token_ids=[5, 6],
        ignore_eos=True,
        logprobs=True,
        top_logprobs=4,
        chat_template_kwargs={"enable_thinking": False},
        add_generation_prompt=False,
        user="someone",
        metadata={"team": "a"},
    )
    assert (await client.post(PATH, json=body)).status_code == 200
    (request,) = engine.requests
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.min_tokens, sampling.n, sampling.seed) == (9, 2, 2, -3)
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.5, 0.9, 40, 0.1)
    assert (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) == (1, -1, 1.1)
    assert (sampling.stop, sampling.stop_token_ids, sampling.ignore_eos) == (("END",), (5, 6), True)
    assert sampling.logprobs == 4
    assert request.template == {"add_generation_prompt": False, "enable_thinking": False}


async def test_absent_fields_leave_the_engine_its_defaults(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    nothing = dict.fromkeys(["max_tokens", "temperature", "stop", "seed", "n", "stream", "stream_options", "tools"])
    assert (await client.post(PATH, json=question(**nothing))).status_code == 200
    assert (await client.post(PATH, json=question())).status_code == 200
    first, second = engine.requests
    assert first.sampling == second.sampling
    assert first.sampling.max_tokens is None
    assert first.template == {"add_generation_prompt": True}


async def test_conversation_becomes_turns_with_placeholders(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    data = "data:image/png;base64,AAEC"
    messages = [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look"},
                {"type": "image_url", "image_url": {"url": data, "detail": "low"}, "uuid": "u1"},
                {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AwQ="}},
            ],
        },
        {"role": "assistant", "content": "A cat.", "refusal": None, "annotations": None, "tool_calls": None},
        {"role": "user", "content": "And now?", "name": "Ann"},
    ]
    assert (await client.post(PATH, json={"messages": messages})).status_code == 200
    (request,) = engine.requests
    assert request.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "image"}, {"type": "video"}]},
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": "And now?"},
    ]
    assert [(medium.kind, medium.data) for medium in request.media] == [("image", b"\0\1\2"), ("video", b"\3\4")]


VIDEO = [{"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AwQ="}}]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"media_io_kwargs": {"video": {"num_frames": 8}}}, {"num_frames": 8}),
        ({"media_io_kwargs": {"video": {"fps": 2, "max_frames": 16}}}, {"fps": 2, "max_frames": 16}),
        ({"mm_processor_kwargs": {"fps": 0.5, "max_pixels": 100_000}}, {"fps": 0.5, "max_pixels": 100_000}),
        (
            {"mm_processor_kwargs": {"num_frames": 4}, "media_io_kwargs": {"video": {"num_frames": 4}}},
            {"num_frames": 4},
        ),
        (
            {"mm_processor_kwargs": {"size": {"shortest_edge": 3136, "longest_edge": 9999}}},
            {"min_pixels": 3136, "max_pixels": 9999},
        ),
    ],
)
async def test_video_options(
    client: httpx.AsyncClient, engine: ScriptedEngine, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert (await client.post(PATH, json=question(VIDEO, **fields))).status_code == 200
    options = engine.requests[0].media[0].options
    given = {name: getattr(options, name) for name in options.__struct_fields__}
    assert {name: value for name, value in given.items() if value is not None} == expected


async def test_the_last_message_can_be_gone_on_with(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well, "}]
    for fields in ({"continue_final_message": True}, {"continue_final_message": True, "add_generation_prompt": False}):
        assert (await client.post(PATH, json={"messages": messages, **fields})).status_code == 200
    assert (await client.post(PATH, json={"messages": messages, "add_generation_prompt": False})).status_code == 200
    goes_on = {"add_generation_prompt": False, "continue_final_message": True}
    assert [request.template for request in engine.requests] == [goes_on, goes_on, {"add_generation_prompt": False}]


@pytest.mark.parametrize(
    ("said", "thinking"), [("<think>I would", True), ("<think>hm</think>So", False), ("So", False)]
)
async def test_thoughts_can_be_gone_on_with(said: str, thinking: bool) -> None:
    from weather_tools import answering

    parts = [{"type": "text", "text": said}]
    async with connected(answering("more", "</think>")) as client:
        for content in (said, parts):
            messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": content}]
            body = {"messages": messages, "continue_final_message": True}
            (choice,) = (await client.post(PATH, json=body)).json()["choices"]
            assert choice["message"].get("reasoning_content") == ("more" if thinking else None)
            assert choice["message"]["content"] == ("" if thinking else "more")
