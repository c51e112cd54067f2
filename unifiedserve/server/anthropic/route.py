"""Serve POST /v1/messages: a conversation in turns and blocks, answered as the chat that it is."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.errors import RequestError
from unifiedserve.server.access.caller import caller_of
from unifiedserve.server.answers.respond import respond_named
from unifiedserve.server.anthropic.conversion import asked_chat, asked_prompt, blocks
from unifiedserve.server.anthropic.count import count_tokens
from unifiedserve.server.anthropic.objects import CountTokensAnswer, MessageAnswer, MessageEvent
from unifiedserve.server.anthropic.reply import MessageReply
from unifiedserve.server.anthropic.request import CountTokensRequest, MessagesRequest
from unifiedserve.server.chat.route import begin_chat
from unifiedserve.server.disconnect import unless_disconnected
from unifiedserve.server.endpoint import Endpoint, Services, json_response
from unifiedserve.server.error_bodies import AnthropicErrorBody
from unifiedserve.server.requests.prompts import unless_few
from unifiedserve.server.requests.receive import received, request_id
from unifiedserve.server.requests.renaming import naming, naming_in

_OLD = "2023-01-01"  # whose streams have another form


async def post_messages(services: Services, request: Request) -> Response:
    """Answer a conversation; raises RequestError that names the client's field."""
    _check_version(request)
    async with received(services, request, MessagesRequest) as body:
        asked = await unless_few(blocks(body), partial(asked_chat, body))
        stream, resumes = bool(body.stream), body.resume is not None
        id = request_id(request, "msg_")
        with naming(asked.names):
            deltas, chat_reply = await begin_chat(request, asked.chat, id, services)
        body.messages.clear()  # media in base64 must not live as long as the answer
    reply = MessageReply(id, services.engine.model_name, chat_reply)
    response = await respond_named(request, id, naming_in(deltas, asked.names), reply, stream=stream, resumes=resumes)
    response.headers["Request-Id"] = id
    return response


async def post_count_tokens(services: Services, request: Request) -> Response:
    """Tell how many tokens a conversation is; raises RequestError as `post_messages`."""
    _check_version(request)
    async with received(services, request, CountTokensRequest) as body:
        asked = await unless_few(blocks(body), partial(asked_prompt, body))
        fetcher = services.fetcher.of(caller_of(request))
        with naming(asked.names):
            tokens = await unless_disconnected(request.receive, count_tokens(asked.chat, services.engine, fetcher))
    return json_response(CountTokensAnswer(tokens))


def _check_version(request: Request) -> None:
    """Raise RequestError 400 for a version of the API that is not served; none is the latest."""
    if request.headers.get("anthropic-version") == _OLD:
        raise RequestError(f"`anthropic-version` {_OLD} is not served: send 2023-06-01 or a later one.")


_endpoint = partial(Endpoint, "POST", error=AnthropicErrorBody)
ENDPOINTS = [
    _endpoint(
        "/v1/messages",
        "Answer a conversation, as Anthropic's API does",
        post_messages,
        body=MessagesRequest,
        answer=MessageAnswer,
        event=MessageEvent,
    ),
    _endpoint(
        "/v1/messages/count_tokens",
        "Count the tokens of a conversation",
        post_count_tokens,
        body=CountTokensRequest,
        answer=CountTokensAnswer,
    ),
]
