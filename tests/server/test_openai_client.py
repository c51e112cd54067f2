"""The openai package as users have it, against a real socket."""

import asyncio

import openai
import pytest
from scripted import WORDS, ScriptedEngine
from scripted_app import listening

TEXT = "".join(WORDS)
MESSAGES = [{"role": "user", "content": "hi"}]


def ask_all_ways(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        (model,) = client.models.list().data
        answer = client.chat.completions.create(
            model=model.id, messages=MESSAGES, max_tokens=5, extra_body={"top_k": 4, "ignore_eos": True}
        )
        assert answer.choices[0].message.content == TEXT
        assert answer.usage.total_tokens == 11
        assert answer._request_id == answer.id
        again = client.chat.completions.create(
            model=model.id, messages=[*MESSAGES, answer.choices[0].message, *MESSAGES], temperature=0
        )
        assert again.choices[0].finish_reason == "stop"
        chunks = list(
            client.chat.completions.create(
                model=model.id, messages=MESSAGES, stream=True, stream_options={"include_usage": True}, logprobs=True
            )
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == TEXT
        assert chunks[-1].usage.completion_tokens == 4
        with pytest.raises(openai.NotFoundError, match="gpt-4") as missing:
            client.chat.completions.create(model="gpt-4", messages=MESSAGES)
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError, match="temperature") as bad:
            client.chat.completions.create(model=model.id, messages=MESSAGES, temperature=-1)
        assert bad.value.param == "temperature"


async def test_synchronous_client(url: str) -> None:
    await asyncio.to_thread(ask_all_ways, url)


async def test_asynchronous_client(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        answer = await client.chat.completions.create(model="scripted", messages=MESSAGES, n=2)
        assert [choice.message.content for choice in answer.choices] == [TEXT, TEXT]
        text = ""
        async for chunk in await client.chat.completions.create(model="scripted", messages=MESSAGES, stream=True):
            text += chunk.choices[0].delta.content or ""
        assert text == TEXT


async def test_closing_a_stream_aborts_the_request() -> None:
    from scripted import never_end

    engine = ScriptedEngine(never_end)
    async with (
        listening(engine) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        stream = await client.chat.completions.create(model="scripted", messages=MESSAGES, stream=True)
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        await stream.close()
        await engine.idle.wait()
        assert engine.events == ["start", "abort"]
