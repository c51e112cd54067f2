"""Serve POST /tokenize and /detokenize."""

from collections.abc import Coroutine
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.server.disconnect import unless_disconnected
from unifiedserve.server.endpoint import Endpoint, Services, json_response
from unifiedserve.server.requests.receive import TEXT_BYTES, received
from unifiedserve.server.tokens.request import DetokenizeRequest, TokenizeRequest
from unifiedserve.server.tokens.tokenize import DetokenizeReply, TokenizeReply, detokenize, tokenize


async def post_tokenize(services: Services, request: Request) -> Response:
    """Return a text's or messages' token ids; raises RequestError."""
    engine = services.engine
    async with received(services, request, TokenizeRequest, TEXT_BYTES) as asked:
        return await _json(request, tokenize(asked, engine))


async def post_detokenize(services: Services, request: Request) -> Response:
    """Return the text of token ids; raises RequestError."""
    engine = services.engine
    async with received(services, request, DetokenizeRequest, TEXT_BYTES) as asked:
        return await _json(request, detokenize(asked, engine))


async def _json(request: Request, work: Coroutine[Any, Any, msgspec.Struct]) -> Response:
    return json_response(await unless_disconnected(request.receive, work))


ENDPOINTS = [
    Endpoint(
        "POST", "/tokenize", "Turn text or messages into token ids", post_tokenize, TokenizeRequest, TokenizeReply
    ),
    Endpoint("POST", "/detokenize", "Turn token ids into text", post_detokenize, DetokenizeRequest, DetokenizeReply),
]
