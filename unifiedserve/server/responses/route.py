"""Serve POST /v1/responses, a conversation in items.

It is answered as the chat that it is. Serve GET and DELETE /v1/responses/{id}, too.
"""

from collections.abc import AsyncGenerator
from functools import partial
from typing import Literal, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.api import Delta
from unifiedserve.server.access.caller import caller_of
from unifiedserve.server.answers.marks import BEGUN, wants_marks
from unifiedserve.server.answers.respond import respond_named
from unifiedserve.server.chat.route import begin_chat
from unifiedserve.server.endpoint import JSON, Endpoint, Services, json_response
from unifiedserve.server.errors import refuse_unless
from unifiedserve.server.requests.prompts import unless_few
from unifiedserve.server.requests.receive import received, request_id
from unifiedserve.server.requests.renaming import naming, naming_in
from unifiedserve.server.responses.bounds import check_bytes, checked_names, counted
from unifiedserve.server.responses.conversion import asked_chat
from unifiedserve.server.responses.exchange import Exchange, items, own_items
from unifiedserve.server.responses.ids import is_stored_id, new_response_id, new_stem, resumable_stem, stem_of
from unifiedserve.server.responses.objects import ResponseEvent, ResponseObject
from unifiedserve.server.responses.references import resolved
from unifiedserve.server.responses.reply import ResponsesReply
from unifiedserve.server.responses.request import ResponsesRequest
from unifiedserve.server.responses.store import PREVIOUS, ResponseStore


class ResponseDeleted(msgspec.Struct):
    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


class _Begun(NamedTuple):
    """Hold a response that has begun."""

    id: str
    deltas: AsyncGenerator[Delta, None]  # whose errors name the client's fields
    reply: ResponsesReply
    streamed: bool
    resumes: bool


async def post_responses(services: Services, request: Request) -> Response:
    """Answer a conversation in items; raises RequestError that names the item's field."""
    begun = await _begin(services, request)  # whose media in base64 must not live as long as the answer
    return await respond_named(
        request, begun.id, begun.deltas, begun.reply, stream=begun.streamed, resumes=begun.resumes
    )


async def _begin(services: Services, request: Request) -> _Begun:
    caller, store = caller_of(request), services.responses
    most_bytes, context = services.bodies.max_bytes, services.engine.max_model_len
    async with received(services, request, ResponsesRequest) as asked:
        previous = asked.previous_response_id
        earlier = store.earlier(previous, caller)
        own = await resolved(own_items(asked.input), store, caller, most_bytes)
        data = msgspec.json.encode(own)
        size = sum(each.size for each in earlier) + len(data)
        check_bytes(size, most_bytes, PREVIOUS if earlier else "input")
        with services.bodies.holding(size):
            exchange = Exchange(previous, data, await counted(data))
            count = checked_names([each.parts for each in [*earlier, exchange]], context)
            stored = _is_stored(asked, exchange, store)
            id = _new_id(request, asked, store) if stored else request_id(request, "resp_")
            chat, names = await unless_few(count, lambda: asked_chat(asked, items(earlier), own))
            with naming(names):
                deltas, chat_reply = await begin_chat(request, chat, id, services)
    finish = None
    if stored:
        store.begin(id, exchange, caller)
        deltas = store.watch(id, exchange, deltas)
        finish = partial(store.finish, id, exchange, caller)
    asked.input = ""
    stem = stem_of(id) if stored else resumable_stem(id) if wants_marks(request) else new_stem()
    engine = services.engine
    reply = ResponsesReply(asked, id, stem, engine.model_name, engine.sampling_defaults, chat_reply, finish)
    return _Begun(id, naming_in(deltas, names), reply, bool(asked.stream), asked.resume is not None)


def _new_id(request: Request, asked: ResponsesRequest, store: ResponseStore) -> str:
    """Return the id of a response to store: the one that its reader has seen, where the answer has begun elsewhere."""
    begun = request.headers.get(BEGUN, "")
    if asked.resume is not None and wants_marks(request) and is_stored_id(begun) and begun not in store:
        return begun
    return new_response_id()


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
    """Return a stored response; raises RequestError: 404 if there is none, 400 if it is to be streamed."""
    streamed = request.query_params.get("stream", "false").lower() not in ("false", "0")
    refuse_unless(not streamed, "stream", "A stored response is not streamed: leave `stream` out.")
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
