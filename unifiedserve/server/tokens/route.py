"""POST /tokenize and /detokenize."""

from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.server.endpoint import Endpoint, Services, json_response
from unifiedserve.server.requests.receive import receive
from unifiedserve.server.tokens.request import DetokenizeRequest, TokenizeRequest
from unifiedserve.server.tokens.tokenize import DetokenizeReply, TokenizeReply, detokenize, tokenize


async def post_tokenize(services: Services, request: Request) -> Response:
    """Return a text's or messages' token ids; raises RequestError."""
    engine = services.engine
    return json_response(await tokenize(await receive(request, engine, TokenizeRequest), engine))


async def post_detokenize(services: Services, request: Request) -> Response:
    """Return the text of token ids; raises RequestError."""
    engine = services.engine
    return json_response(await detokenize(await receive(request, engine, DetokenizeRequest), engine))


ENDPOINTS = [
    Endpoint("POST", "/tokenize", "Text or messages to token ids", post_tokenize, TokenizeRequest, TokenizeReply),
    Endpoint("POST", "/detokenize", "Token ids to text", post_detokenize, DetokenizeRequest, DetokenizeReply),
]
