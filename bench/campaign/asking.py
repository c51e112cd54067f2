"""Requests that keep to HTTP: sent whole, and their answers judged."""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any, NamedTuple

import httpx

from bench.campaign.cases import Act, Kind, Seen, Target, ViolationError
from bench.campaign.verdict import judge

CHAT = "/v1/chat/completions"
TEXTS = "/v1/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"
PLAN = "/v1/plan"
EMBEDDINGS = "/v1/embeddings"
TOKENIZE = "/tokenize"
DETOKENIZE = "/detokenize"
MOST_BYTES = 1 << 20  # of an answer: from there on the client has seen enough, and goes
MOST_SECONDS = 8.0  # the same, while an answer goes on


class Request(NamedTuple):
    """A request, and which statuses it may be answered with (none: any proper one)."""

    path: str
    body: bytes = b""
    method: str = "POST"
    headers: Mapping[str, str | bytes] = {"Content-Type": "application/json"}
    expect: Collection[int] = ()


def asks(path: str, value: Mapping[str, Any], *expect: int) -> Request:
    """Return a request of JSON."""
    return Request(path, json.dumps(value).encode(errors="surrogatepass"), expect=expect)


def chat(content: Any = "What is this?", **fields: Any) -> dict[str, Any]:
    """Return a chat's body whose answer is short, unless fields say otherwise."""
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 4, "deadline": 20, **fields}


def kind(name: str, weight: float, make: Callable[[Random], Request]) -> Kind:
    """Return the kind of cases that are requests as `make` returns them."""
    return Kind(name, weight, _sending(make))


def _sending(make: Callable[[Random], Request]) -> Act:
    async def act(target: Target, random: Random) -> Seen:
        return await send(target, await asyncio.to_thread(make, random))

    return act


async def send(target: Target, request: Request) -> Seen:
    """Send a request and judge its answer, which is read as far as it matters."""
    try:
        return await _sent(target, request)
    except httpx.TransportError:  # the connection was one that the server had just closed
        pass
    try:
        return await _sent(target, request)
    except httpx.HTTPError as error:
        raise ViolationError(f"no answer: {type(error).__name__} {error}") from None


async def _sent(target: Target, request: Request) -> Seen:
    async with target.http.stream(
        request.method, request.path, content=request.body, headers=_encoded(request.headers)
    ) as response:
        body = await _read(response)
        return judge(response.status_code, response.headers, body, request.expect)


def _encoded(headers: Mapping[str, str | bytes]) -> dict[bytes, bytes]:
    return {name.encode(): value if isinstance(value, bytes) else value.encode() for name, value in headers.items()}


async def _read(response: httpx.Response) -> bytes:
    """Return the body; of a stream, what came until the client has had enough."""
    if "event-stream" not in response.headers.get("content-type", ""):
        return await response.aread()
    body = bytearray()
    try:
        async with asyncio.timeout(MOST_SECONDS):
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > MOST_BYTES:
                    break
    except TimeoutError:
        pass
    return bytes(body)
