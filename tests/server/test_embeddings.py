"""Answers of /v1/embeddings: the shapes that OpenAI's clients read, and what is refused."""

import base64
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
from refusals import check_refused, error_of
from scripted import ScriptedEngine
from scripted_app import connected, question

from unifiedserve.messages.api import Delta, GenerateRequest
from unifiedserve.models.pooling import Pooling

PATH = "/v1/embeddings"
VECTOR = np.array([3, 0, 4], np.float32)


async def embed(request: GenerateRequest) -> AsyncGenerator[Delta, None]:
    """The number of tokens, times VECTOR."""
    tokens = len(request.prompt_token_ids or ())
    pooled = (tokens * VECTOR).tobytes()
    yield Delta(
        index=0, text="", token_ids=[], finish_reason="length", prompt_tokens=tokens, generated_tokens=0, pooled=pooled
    )


@pytest.fixture
def engine() -> ScriptedEngine:
    engine = ScriptedEngine(embed)
    engine.processor.pooling = Pooling("mean", normalize=True, dimensions=(1, 2))
    return engine


@pytest.fixture
async def client(engine: ScriptedEngine) -> AsyncIterator[httpx.AsyncClient]:
    async with connected(engine) as client:
        yield client


@pytest.mark.parametrize(
    ("given", "tokens"),
    [("abc", [3]), (["a", "bcd"], [1, 3]), ([1, 2], [2]), ([[1], [2, 3]], [1, 2]), ([7] * 300, [300])],
)
async def test_every_kind_of_input(
    client: httpx.AsyncClient, engine: ScriptedEngine, given: Any, tokens: list[int]
) -> None:
    engine.processor.pooling = Pooling("mean", normalize=False)
    body = {"input": given, "model": "scripted", "user": "someone", "priority": -2}
    answer = (await client.post(PATH, json=body)).json()
    expected = [{"object": "embedding", "index": i, "embedding": [3 * n, 0, 4 * n]} for i, n in enumerate(tokens)]
    usage = {"prompt_tokens": sum(tokens), "total_tokens": sum(tokens)}
    assert answer == {"object": "list", "data": expected, "model": "scripted", "usage": usage}
    assert {(r.embed, r.sampling.max_tokens, r.priority) for r in engine.requests} == {(True, 0, -2)}
    places = ["input"] if len(tokens) == 1 else ["input[0]", "input[1]"]
    assert [request.prompt_param for request in engine.requests] == places


async def test_vectors_are_normalised_and_cut(client: httpx.AsyncClient) -> None:
    async def vector(**body: Any) -> list[float]:
        answer = (await client.post(PATH, json={"input": "abc", **body})).json()
        return list(answer["data"][0]["embedding"])

    assert await vector() == pytest.approx([0.6, 0, 0.8])
    assert await vector(dimensions=2) == [1, 0]
    answer = (await client.post(PATH, json={"input": "abc", "encoding_format": "base64"})).json()
    written = base64.b64decode(answer["data"][0]["embedding"])
    assert np.frombuffer(written, "<f4").tolist() == pytest.approx([0.6, 0, 0.8])


async def test_messages_are_one_input(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    response = await client.post(PATH, json=question([{"type": "text", "text": "hi"}]))
    assert response.status_code == 200
    (request,) = engine.requests
    assert request.messages == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert request.template == {"add_generation_prompt": False}


BAD = [
    ({}, "input", "either"),
    (question(input="a"), "input", "either"),
    ({"input": []}, "input", "length >= 1"),
    ({"input": ["a", 1]}, "input", "mix"),
    ({"input": ["a"] * 257}, "input", "256"),
    ({"input": "a", "dimensions": 0}, "dimensions", ">= 1"),
    ({"input": "a", "dimensions": 3}, "dimensions", "1, 2"),
    ({"input": "a", "encoding_format": "hex"}, "encoding_format", "hex"),
    ({"input": "a", "truncate_prompt_tokens": 5}, "truncate_prompt_tokens", "not supported"),
    ({"input": "a", "inputs": "b"}, "inputs", "`input`"),
]


@pytest.mark.parametrize(("body", "param", "hint"), BAD)
async def test_field_and_reason_are_named(
    client: httpx.AsyncClient, engine: ScriptedEngine, body: dict[str, Any], param: str, hint: str
) -> None:
    await check_refused(client, engine, PATH, body, param, hint)


async def test_dimensions_need_a_model_that_can_be_cut(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    engine.processor.pooling = Pooling("mean", normalize=True)
    response = await client.post(PATH, json={"input": "a", "dimensions": 2})
    assert response.status_code == 400
    assert "matryoshka" in error_of(response)["message"]
    engine.processor.pooling = Pooling("mean", normalize=True, dimensions=None)
    assert (await client.post(PATH, json={"input": "a", "dimensions": 2})).status_code == 200


async def test_a_model_that_generates_says_what_would_have_embeddings() -> None:
    async with connected(ScriptedEngine()) as client:
        response = await client.post(PATH, json={"input": "a"})
    assert response.status_code == 400
    assert error_of(response)["param"] == "model"
    assert "modules.json" in error_of(response)["message"]
