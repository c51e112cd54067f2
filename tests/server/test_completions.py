"""Answers of /v1/completions: the shapes that OpenAI's and vLLM's clients read, whole and streamed."""

from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from chat_requests import stream_of
from scripted import WORDS, ScriptedEngine, delta
from scripted_app import connected, usage

from unifiedserve.errors import RequestError
from unifiedserve.messages.api import Delta, GenerateRequest, TokenLogprob

PATH = "/v1/completions"
TEXT = "".join(WORDS)


async def complete(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    response = await client.post(PATH, json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_whole_answer(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    answer = await complete(client, prompt="Once", model="scripted", max_tokens=9)
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert answer["choices"] == [
        {"index": 0, "text": TEXT, "logprobs": None, "finish_reason": "stop", "stop_reason": None, "token_ids": None}
    ]
    assert answer["usage"] == usage(7, 4)
    (request,) = engine.requests
    assert request.prompt_token_ids == list(b"Once")
    assert request.sampling.max_tokens == 9


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [([72] * 300, ["H" * 300]), ([72, 105], ["Hi"]), (["a", "b"], ["a", "b"]), ([[72], [105, 33]], ["H", "i!"])],
)
async def test_every_kind_of_prompt(
    client: httpx.AsyncClient, engine: ScriptedEngine, prompt: Any, texts: list[str]
) -> None:
    answer = await complete(client, prompt=prompt, n=2, echo=True)
    assert [choice["text"] for choice in answer["choices"]] == [text + TEXT for text in texts for _ in range(2)]
    assert [choice["index"] for choice in answer["choices"]] == list(range(2 * len(texts)))
    assert [bytes(request.prompt_token_ids or ()).decode() for request in engine.requests] == texts
    places = ["prompt"] if len(texts) == 1 else ["prompt[0]", "prompt[1]"]
    assert [request.prompt_param for request in engine.requests] == places
    assert answer["usage"]["prompt_tokens"] == 7 * len(texts)
    assert answer["usage"]["completion_tokens"] == 8 * len(texts)


async def test_logprobs_have_tokens_and_offsets(client: httpx.AsyncClient) -> None:
    (choice,) = (await complete(client, prompt="a", logprobs=2))["choices"]
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == ["A", "B", "C", "D"]
    assert logprobs["token_logprobs"] == [-0.5] * 4
    assert logprobs["text_offset"] == [0, 1, 2, 3]
    assert logprobs["top_logprobs"][0] == {"A": -0.5, r"bytes:\xc8": -1.5}


async def test_stream_echoes_then_goes_on(client: httpx.AsyncClient) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, last = await stream_of(client, PATH, {"prompt": ["x", "y"], "echo": True, "stream_options": options})
    assert chunks[0]["choices"][0]["text"] == "x" + WORDS[0]
    texts = {0: "", 1: ""}
    for chunk in chunks:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["text"]
    assert texts == {0: "x" + TEXT, 1: "y" + TEXT}
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert last["choices"] == []
    assert last["usage"] == usage(14, 8)


async def test_echoed_logprobs_begin_with_the_prompt(client: httpx.AsyncClient) -> None:
    (choice,) = (await complete(client, prompt="ab", logprobs=1, echo=True))["choices"]
    logprobs = choice["logprobs"]
    assert choice["text"] == "ab" + TEXT
    assert logprobs["tokens"] == ["a", "b", "A", "B", "C", "D"]
    assert logprobs["token_logprobs"] == [None, -1.0, *[-0.5] * 4]
    assert logprobs["text_offset"] == [0, 1, 2, 3, 4, 5]
    assert logprobs["top_logprobs"][:3] == [None, {"z": -0.25, "b": -1.0}, {"A": -0.5}]
    assert "prompt_logprobs" not in choice
    body = {"prompt": "ab", "logprobs": 1, "echo": True}
    chunks = [chunk["choices"][0]["logprobs"] for chunk in await stream_of(client, PATH, body)]
    assert {field: [item for chunk in chunks for item in chunk[field]] for field in logprobs} == logprobs


async def test_a_prompt_can_be_scored_alone(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    (choice,) = (await complete(client, prompt=[97, 98], logprobs=1, echo=True, max_tokens=0))["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("ab", "length")
    assert choice["logprobs"]["tokens"] == ["a", "b"]
    assert engine.requests[0].sampling.max_tokens == 0


async def test_prompt_logprobs_are_by_token_id(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    fields = {"prompt": ["ab", "c"], "prompt_logprobs": 1, "logprobs": 3}
    first, second = (await complete(client, **fields))["choices"]
    assert first["prompt_logprobs"] == [
        None,
        {
            "98": {"logprob": -1.0, "rank": 3, "decoded_token": "b"},
            "122": {"logprob": -0.25, "rank": 1, "decoded_token": "z"},
        },
    ]
    assert second["prompt_logprobs"] == [None]
    assert first["logprobs"]["tokens"] == ["A", "B", "C", "D"]
    assert [request.sampling.prompt_logprobs for request in engine.requests] == [1, 1]
    (echoed,) = (await complete(client, prompt="ab", prompt_logprobs=0, logprobs=1, echo=True))["choices"]
    assert engine.requests[-1].sampling.prompt_logprobs == 1
    assert list(echoed["prompt_logprobs"][1]) == ["98"]


async def test_best_of_shows_the_likeliest() -> None:
    async def script(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        assert request.sampling.logprobs == 0
        for index, logprob in enumerate([-3.0, -0.5, -1.0, -0.7]):
            piece = delta(f"answer {index}", 1, index=index, finish="stop")
            piece.logprobs = [TokenLogprob(65, logprob)]
            yield piece

    async with connected(ScriptedEngine(script)) as client:
        answer = await complete(client, prompt="a", n=2, best_of=4)
    assert [(choice["index"], choice["text"]) for choice in answer["choices"]] == [(0, "answer 1"), (1, "answer 3")]
    assert answer["choices"][0]["logprobs"] is None
    assert answer["usage"]["completion_tokens"] == 4


async def test_options_reach_the_engine(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    await complete(client, prompt="a", logit_bias={"5": -2}, priority=-3, slo_ttft=250, deadline=9, guided_choice=["b"])
    (request,) = engine.requests
    assert request.sampling.logit_bias == {5: -2.0}
    assert request.sampling.max_tokens == 16
    assert request.slo_ttft == 0.25
    assert (request.priority, request.deadline, request.grammar_param) == (-3, 9.0, "guided_choice")
    assert '"b"' in str(request.sampling.grammar).replace("\\", "")


async def test_one_bad_prompt_ends_all() -> None:
    async def script(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        if request.prompt_token_ids == [98]:
            raise RequestError("too long", param="prompt")
        yield delta("a", 1)
        await engine.idle.wait()

    engine = ScriptedEngine(script)
    async with connected(engine) as client:
        response = await client.post(PATH, json={"prompt": ["a", "b", "c"]})
        assert response.status_code == 400
        assert response.json()["error"]["message"] == "too long"
        assert engine.running == 0


@pytest.mark.parametrize("whole", [True, False])
async def test_offsets_of_parts_of_characters_are_the_characters(client: httpx.AsyncClient, whole: bool) -> None:
    """The prompt's tokens are bytes; the answer's begin behind the prompt."""
    body = {"prompt": "é😀xy", "logprobs": 1, "echo": True}
    if whole:
        chunks = (await complete(client, **body))["choices"]
    else:
        chunks = [chunk["choices"][0] for chunk in await stream_of(client, PATH, body)]
    offsets = [offset for chunk in chunks for offset in chunk["logprobs"]["text_offset"]]
    tokens = [token for chunk in chunks for token in chunk["logprobs"]["tokens"]]
    assert offsets == [0, 0, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7]
    assert tokens[:2] == [r"bytes:\xc3", r"bytes:\xa9"]
    assert len(set(tokens)) == len(tokens)
