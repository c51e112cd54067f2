"""Serve POST /v1/chat/completions: one request from its bytes to its answer."""

from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.messages.api import Delta, GenerateRequest
from unifiedserve.server.access.caller import caller_of
from unifiedserve.server.answers.respond import respond
from unifiedserve.server.chat.conversion import generate_request
from unifiedserve.server.chat.objects import ChatCompletion, ChatCompletionChunk
from unifiedserve.server.chat.reading import reading
from unifiedserve.server.chat.reply import Reply
from unifiedserve.server.chat.request import ChatRequest
from unifiedserve.server.chat.tools import ToolUse, tool_use
from unifiedserve.server.disconnect import unless_disconnected
from unifiedserve.server.endpoint import Endpoint, Services
from unifiedserve.server.errors import refuse_unless
from unifiedserve.server.requests.encode_nodes import encode_nodes
from unifiedserve.server.requests.receive import received, request_id, viewer_of


async def post_chat_completions(services: Services, request: Request) -> Response:
    """Answer a conversation; raises RequestError."""
    async with received(services, request, ChatRequest) as chat:
        _check_usage(chat)
        id = request_id(request, "chatcmpl-")
        deltas, reply = await begin_chat(request, chat, id, services)
    return await respond(request, chat, id, deltas, reply)


def _check_usage(chat: ChatRequest) -> None:
    """Raise RequestError 400 for facts that belong in a missing usage. A stream does not have one."""
    told = not chat.stream or (chat.stream_options is not None and chat.stream_options.include_usage)
    refuse_unless(
        bool(told or not chat.return_media_usage),
        "return_media_usage",
        "`return_media_usage` in a stream needs `stream_options.include_usage`: true.",
    )


async def begin_chat(
    request: Request, chat: ChatRequest, id: str, services: Services
) -> tuple[AsyncGenerator[Delta, None], Reply]:
    """Return the engine's answer to a conversation, and the reply that reads it."""
    engine = services.engine
    work, tools = await chat_work(request, chat, id, services)
    how = await reading(work, tools, engine, streamed=bool(chat.stream))
    reply = Reply(id, engine.model_name, engine.processor.chat.tokens, how, token_ids=bool(chat.return_token_ids))
    return engine.generate(work), reply


async def chat_work(
    request: Request, chat: ChatRequest, id: str, services: Services
) -> tuple[GenerateRequest, ToolUse | None]:
    """Return the engine's request for a conversation, and its tools. The messages are taken out of it."""
    tools = tool_use(chat, services.engine)
    fetcher, defaults = services.fetcher.of(caller_of(request)), services.engine.sampling_defaults
    work = await unless_disconnected(request.receive, generate_request(chat, id, fetcher, tools, defaults))
    work.encode_nodes = encode_nodes(request)
    work.viewer = viewer_of(request, request.headers.get("x-viewer"))
    chat.messages.clear()  # media in base64 must not live as long as the answer
    return work, tools


ENDPOINT = Endpoint(
    "POST",
    "/v1/chat/completions",
    "Answer a conversation",
    post_chat_completions,
    body=ChatRequest,
    answer=ChatCompletion,
    event=ChatCompletionChunk,
)
