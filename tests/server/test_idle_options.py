"""Options that ask for nothing, or for what is done in any case, are let pass, wherever clients write them."""

from typing import Any

import httpx
import openai
import pytest
from chat_requests import PATH
from scripted import ScriptedEngine
from scripted_app import listening, question

from unifiedserve.messages.media import MediaOptions

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}
VIDEO = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,bbbb"}}
MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
IDLE: list[dict[str, Any]] = [
    question(documents=[]),
    question(reasoning_effort="none"),
    question(reasoning_effort=None),
    question(stream_options={"include_usage": False, "include_obfuscation": None}),
    question(stream_options={"include_obfuscation": False}, stream=True),
    *(question(service_tier=tier) for tier in (None, "auto", "default", "flex", "priority")),
    question(verbosity="medium", prompt_cache_retention="in_memory"),
    question(include_reasoning=True, early_stopping=False, return_tokens_as_token_ids=False),
    question(chat_template=None, logits_processors=None, cache_salt=None),
    question([{"type": "text", "text": "hi", **MARK}, {**IMAGE, **MARK}], **MARK),
    {"messages": [{"role": "system", "content": "Be brief.", **MARK}, {"role": "user", "content": "hi"}]},
    question([VIDEO], mm_processor_kwargs={"do_resize": True, "use_audio_in_video": False}),
]


@pytest.mark.parametrize("body", IDLE)
async def test_chat(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    response = await client.post(PATH, json=body)
    assert response.status_code == 200, response.text


@pytest.mark.parametrize(
    "options",
    [
        {"reasoning": {"effort": None, "summary": None}},
        {"reasoning": {"effort": "none"}},
        {"include": ["reasoning.encrypted_content", "file_search_call.results"]},
        {"stream": True, "stream_options": {"include_obfuscation": False}},
        {"text": {"verbosity": "medium"}, "service_tier": "flex", "prompt_cache_retention": "in_memory"},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi", **MARK}]}]},
    ],
)
async def test_responses(client: httpx.AsyncClient, options: dict[str, Any]) -> None:
    response = await client.post("/v1/responses", json={"input": "hi", **options})
    assert response.status_code == 200, response.text


async def test_a_mark_on_a_tool_is_not_shown_to_the_model() -> None:
    from weather_tools import WEATHER, answering

    engine = answering("Well.")
    async with listening(engine) as url, httpx.AsyncClient(base_url=url) as client:
        marked = {**WEATHER, **MARK, "function": {**WEATHER["function"], **MARK}}
        assert (await client.post(PATH, json=question(tools=[marked]))).status_code == 200
    assert engine.requests[0].template["tools"] == [WEATHER]


async def test_top_p_of_nothing_is_greedy(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    for path, body in [
        (PATH, question(top_p=0, temperature=0.7)),
        ("/v1/completions", {"prompt": "hi", "top_p": 0}),
        ("/v1/responses", {"input": "hi", "top_p": 0}),
    ]:
        assert (await client.post(path, json=body)).status_code == 200
    assert all(request.sampling.greedy and request.sampling.top_p == 1 for request in engine.requests)


async def test_effort_none_does_not_think(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    await client.post(PATH, json=question(reasoning_effort="none"))
    await client.post("/v1/responses", json={"input": "hi", "reasoning": {"effort": "none"}})
    assert all(request.template["enable_thinking"] is False for request in engine.requests)


@pytest.mark.parametrize(
    "extra",
    [
        {"mm_processor_kwargs": {"fps": 2, "do_sample_frames": True}},
        {"media_io_kwargs": {"video": {"num_frames": -1}}, "mm_processor_kwargs": {"fps": 2, "do_sample_frames": True}},
        {"media_io_kwargs": {"video": {"num_frames": -1, "fps": 2}}},
    ],
)
async def test_recipes_for_videos_sample_by_rate(engine: ScriptedEngine, extra: dict[str, Any]) -> None:
    """As Qwen and vLLM write them; -1 frames are as many as there are."""
    async with (
        listening(engine) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        messages: Any = [{"role": "user", "content": [VIDEO]}]
        await client.chat.completions.create(model="scripted", messages=messages, extra_body=extra)
    (medium,) = engine.requests[0].media
    assert medium.options == MediaOptions(fps=2)
