"""The small endpoints."""

import re

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from scripted import ScriptedEngine
from scripted_app import connected

from unifiedserve import __version__


async def test_models(client: httpx.AsyncClient) -> None:
    body = (await client.get("/v1/models")).json()
    assert body["object"] == "list"
    (model,) = body["data"]
    assert (model["id"], model["object"], model["max_model_len"]) == ("scripted", "model", 4096)


async def test_health_follows_the_workers(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    assert (await client.get("/health")).status_code == 200
    engine.healthy = False
    assert (await client.get("/health")).status_code == 503
    engine.healthy = True
    assert (await client.get("/health")).status_code == 200


async def test_version(client: httpx.AsyncClient) -> None:
    assert (await client.get("/version")).json() == {"version": __version__}


async def test_metrics_can_be_scraped(client: httpx.AsyncClient) -> None:
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(response.text)}
    (ratio,) = families["unifiedserve:buffer_usage_ratio"].samples
    assert (ratio.labels, ratio.value) == ({"buffer": "kv", "memory": "mem0"}, 0.25)
    (waiting,) = families["unifiedserve:num_requests_waiting"].samples
    assert (waiting.labels, waiting.value) == ({"stage": "decode"}, 2)


async def test_trace_of_all_and_of_one_request(client: httpx.AsyncClient) -> None:
    assert (await client.get("/debug/trace")).json()["asked"] is None
    assert (await client.get("/debug/trace", params={"request_id": "chatcmpl-1"})).json()["asked"] == "chatcmpl-1"


async def test_tokenize_and_back(client: httpx.AsyncClient) -> None:
    tokens = (await client.post("/tokenize", json={"prompt": "naïve", "return_token_strs": True})).json()
    assert tokens["tokens"] == list("naïve".encode())
    assert tokens["count"] == len(tokens["token_strs"]) == 6
    assert tokens["max_model_len"] == 4096
    text = (await client.post("/detokenize", json={"tokens": tokens["tokens"]})).json()
    assert text == {"prompt": "naïve"}


async def test_tokenize_messages(client: httpx.AsyncClient) -> None:
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}
    with_prompt = (await client.post("/tokenize", json=body)).json()["tokens"]
    without = (await client.post("/tokenize", json={**body, "add_generation_prompt": False})).json()["tokens"]
    assert (bytes(with_prompt), bytes(without)) == (b"user:a\nassistant:", b"user:a\n")


@pytest.mark.parametrize("content", ["a", [{"type": "text", "text": "a"}]])
async def test_tokenize_knows_developers_as_chat_does(
    client: httpx.AsyncClient, engine: ScriptedEngine, content: object
) -> None:
    body = {"messages": [{"role": "developer", "content": content}]}
    tokens = (await client.post("/tokenize", json=body)).json()["tokens"]
    assert bytes(tokens) == b"system:a\nassistant:"
    await client.post("/v1/chat/completions", json=body)
    assert engine.requests[0].messages[0]["role"] == "system"


async def test_tokenize_refuses(client: httpx.AsyncClient) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    for body, param in [
        ({}, "prompt"),
        ({"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "prompt"),
        ({"messages": [{"role": "user", "content": [image]}]}, "messages[0].content[0]"),
        ({"promt": "a"}, "promt"),
    ]:
        response = await client.post("/tokenize", json=body)
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)
    response = await client.post("/detokenize", json={"tokens": [1, 256]})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "tokens[1]")


async def test_openapi_describes_what_is_parsed(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]
    body = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]
    assert body["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/ChatRequest"}
    assert {"messages", "top_k", "media_io_kwargs"} <= schemas["ChatRequest"]["properties"].keys()
    assert schemas["ChatRequest"]["additionalProperties"] is False
    names = {ref.removeprefix("#/components/schemas/") for ref in references(document)}
    assert names <= schemas.keys()
    responses = {status for path in document["paths"].values() for op in path.values() for status in op["responses"]}
    assert "422" not in responses


async def test_openapi_describes_what_is_sent(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    for path in ("/metrics", "/health", "/v1/models", "/version", "/debug/trace"):
        (described,) = document["paths"][path]["get"]["responses"]["200"]["content"]
        sent = (await client.get(path)).headers["content-type"]
        assert sent.partition(";")[0] == described
    answers = document["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]["content"]
    assert answers["application/json"]["schema"] == {"$ref": "#/components/schemas/ChatCompletion"}
    closing, chunk = answers["text/event-stream"]["itemSchema"]["properties"]["data"]["anyOf"]
    assert closing == {"const": "[DONE]"}
    assert chunk["contentSchema"]["anyOf"] == [
        {"$ref": "#/components/schemas/ChatCompletionChunk"},
        {"$ref": "#/components/schemas/ErrorBody"},
    ]


async def test_the_page_of_the_description_loads_it(client: httpx.AsyncClient) -> None:
    page = await client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    (document,) = re.findall(r'url: "([^"]+)"', page.text)
    assert (await client.get(f"http://localhost/{document}")).json()["openapi"].startswith("3.1")


async def test_lifespan_starts_and_stops_the_engine() -> None:
    engine = ScriptedEngine()
    async with connected(engine):
        assert engine.events == ["start"]
    assert engine.events == ["start", "stop"]


def references(node: object) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*map(references, node.values()))
    return set().union(*map(references, node)) if isinstance(node, list) else set()
