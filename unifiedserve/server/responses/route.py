"""POST /v1/responses, a conversation in items, answered as the chat that it is; GET and DELETE /v1/responses/{id}."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Literal, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.config import MIB
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.api import Delta
from unifiedserve.server.access.caller import caller_of
from unifiedserve.server.answers.respond import respond_named
from unifiedserve.server.chat.route import begin_chat
from unifiedserve.server.endpoint import JSON, Endpoint, Services, json_response
from unifiedserve.server.requests.json_size import json_size
from unifiedserve.server.requests.parse import check_size
from unifiedserve.server.requests.prompts import unless_few
from unifiedserve.server.requests.receive import received, request_id
from unifiedserve.server.requests.renaming import naming, naming_in
from unifiedserve.server.responses.conversion import chat_request, response_param
from unifiedserve.server.responses.exchange import Exchange, Items, items, own_items, total
from unifiedserve.server.responses.objects import ResponseEvent, ResponseObject
from unifiedserve.server.responses.reply import ResponsesReply
from unifiedserve.server.responses.request import ResponsesRequest
from unifiedserve.server.responses.store import PREVIOUS, ResponseStore

_LARGE = 1 << 16  # bytes of items


class ResponseDeleted(msgspec.Struct):
    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


class _Begun(NamedTuple):
    """A response that has begun."""

    id: str
    deltas: AsyncGenerator[Delta, None]
    reply: ResponsesReply
    streamed: bool


async def post_responses(services: Services, request: Request) -> Response:
    """Answer a conversation in items; raises RequestError that names the item's field."""
    begun = await _begin(services, request)  # whose media in base64 must not live as long as the answer
    deltas = naming_in(begun.deltas, response_param)
    return await respond_named(request, begun.id, deltas, begun.reply, stream=begun.streamed)


async def _begin(services: Services, request: Request) -> _Begun:
    caller, store = caller_of(request), services.responses
    async with received(services, request, ResponsesRequest) as asked:
        earlier = store.earlier(asked.previous_response_id, caller)
        own = own_items(asked.input)
        exchange = await _exchange(asked.previous_response_id, own)
        names = _checked_names(services, [*earlier, exchange])
        stored = _is_stored(asked, exchange, store)
        id = f"resp_{uuid.uuid4().hex}" if stored else request_id(request, "resp_")
        with services.bodies.holding(sum(each.size for each in [*earlier, exchange])), naming(response_param):
            chat = await unless_few(names, lambda: chat_request(asked, items(earlier), own))
            deltas, chat_reply = await begin_chat(request, chat, id, services)
    finish = None
    if stored:
        store.begin(id, exchange, caller)
        deltas = store.watch(id, exchange, deltas)
        finish = partial(store.finish, id, exchange, caller)
    asked.input = ""
    reply = ResponsesReply(asked, id, services.engine.model_name, chat_reply, finish)
    return _Begun(id, deltas, reply, streamed=bool(asked.stream))


async def _exchange(previous: str | None, own: Items) -> Exchange:
    """Return an exchange that is not answered yet; what is large is counted beside the event loop."""
    data = msgspec.json.encode(own)
    parts = json_size(data) if len(data) <= _LARGE else await asyncio.to_thread(json_size, data)
    return Exchange(previous, data, parts)


def _checked_names(services: Services, exchanges: Sequence[Exchange]) -> int:
    """Return how many names a conversation has; raise RequestError 413 if it is more than one body may be."""
    most = services.bodies.max_bytes
    if sum(each.size for each in exchanges) > most:
        raise RequestError(
            f"The conversation takes more than {most / MIB:g} MiB with what came before (see --max-body-mib): "
            "begin another one.",
            ErrorKind.TOO_LARGE,
            param=PREVIOUS,
            code="request_too_large",
        )
    parts = total([each.parts for each in exchanges])
    check_size(parts, services.engine.max_model_len)
    return parts.names


def _is_stored(asked: ResponsesRequest, exchange: Exchange, store: ResponseStore) -> bool:
    """Tell whether a response will be stored; raise RequestError 413 if it must be, and cannot."""
    if asked.store and not store.fits(exchange.size):
        raise RequestError(
            f"`store` is true, but the input takes {exchange.size} bytes, and the server stores less "
            "(see --response-store-mib).",
            ErrorKind.TOO_LARGE,
            param="store",
        )
    return asked.store is not False and store.fits(exchange.size)


async def get_response(services: Services, request: Request) -> Response:
    """Return a stored response; raises RequestError 404 if there is none."""
    data = services.responses.response(request.path_params["id"], caller_of(request))
    return Response(data, media_type=JSON)


async def delete_response(services: Services, request: Request) -> Response:
    """Forget a stored response; raises RequestError 404 if there is none."""
    id: str = request.path_params["id"]
    services.responses.delete(id, caller_of(request))
    return json_response(ResponseDeleted(id))


ENDPOINTS = [
    Endpoint(
        "POST",
        "/v1/responses",
        "Answer a conversation given as items (OpenAI's Responses API)",
        post_responses,
        body=ResponsesRequest,
        answer=ResponseObject,
        event=ResponseEvent,
    ),
    Endpoint("GET", "/v1/responses/{id}", "Return a stored response", get_response, answer=ResponseObject),
    Endpoint("DELETE", "/v1/responses/{id}", "Delete a stored response", delete_response, answer=ResponseDeleted),
]
