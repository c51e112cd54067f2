"""POST /v1/responses: a conversation in items, answered as the chat that it is."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.errors import RequestError
from unifiedserve.server.answers.deltas import HeldDeltas
from unifiedserve.server.answers.event_stream import ending, event
from unifiedserve.server.answers.respond import respond_in_events, respond_whole
from unifiedserve.server.chat.route import begin_chat
from unifiedserve.server.endpoint import Endpoint, Services
from unifiedserve.server.requests.receive import received, request_id
from unifiedserve.server.responses.conversion import chat_request, response_param
from unifiedserve.server.responses.objects import ResponseEvent, ResponseObject
from unifiedserve.server.responses.reply import ResponsesReply
from unifiedserve.server.responses.request import ResponsesRequest


async def post_responses(services: Services, request: Request) -> Response:
    """Answer a conversation in items; raises RequestError that names the item's field."""
    async with received(services, request, ResponsesRequest) as asked:
        id = request_id(request, "resp_")
        with _naming_items():
            deltas, chat_reply = await begin_chat(request, chat_request(asked), id, services)
    reply = ResponsesReply(asked, id, services.engine.model_name, chat_reply)
    asked.input = ""  # media in base64 must not live as long as the answer
    with _naming_items():
        if asked.stream:
            return await respond_in_events(request, id, deltas, lambda held: _events(held, reply))
        return await respond_whole(request, id, deltas, reply)


@contextlib.contextmanager
def _naming_items() -> Iterator[None]:
    """Have errors name fields of this endpoint's requests in place of those of the chat that they become."""
    try:
        yield
    except RequestError as error:
        error.param = response_param(error.param)
        raise


def _events(held: HeldDeltas, reply: ResponsesReply) -> AsyncIterator[bytes]:
    return ending(_growing(held, reply), lambda error: _named(reply.failure(error)))


async def _growing(held: HeldDeltas, reply: ResponsesReply) -> AsyncIterator[bytes]:
    for each in reply.begin():
        yield _named(each)
    async for delta in held:
        for each in reply.take(delta):
            yield _named(each)


def _named(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\n".encode() + event(data)


ENDPOINT = Endpoint(
    "POST",
    "/v1/responses",
    "Answer a conversation, in items",
    post_responses,
    body=ResponsesRequest,
    answer=ResponseObject,
    event=ResponseEvent,
)
