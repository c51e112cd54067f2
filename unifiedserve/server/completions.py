"""The endpoints that need the model: one request from its bytes to its answer."""

from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.errors import RequestError
from unifiedserve.messages import Delta
from unifiedserve.server.chat import generate_request
from unifiedserve.server.disconnect import unless_disconnected
from unifiedserve.server.embedding import embedding_requests
from unifiedserve.server.embedding_reply import EmbeddingReply
from unifiedserve.server.exchange import receive, request_id, respond, respond_in_events
from unifiedserve.server.media import MediaFetcher
from unifiedserve.server.merge import merged
from unifiedserve.server.protocol import GrowingReply, ServingEngine
from unifiedserve.server.reply import Reply
from unifiedserve.server.responses import chat_request, response_param
from unifiedserve.server.responses_reply import ResponsesReply
from unifiedserve.server.responses_schema import RESPONSES_UNSUPPORTED, ResponsesRequest
from unifiedserve.server.schema import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    GenerationOptions,
    StreamOptions,
)
from unifiedserve.server.stream import chunk_events, response_events
from unifiedserve.server.text import echoes, text_requests
from unifiedserve.server.text_reply import TextReply
from unifiedserve.server.tools import reading, tool_use


async def chat_completions(request: Request, engine: ServingEngine, fetcher: MediaFetcher) -> Response:
    chat = await receive(request, engine, ChatRequest)
    id = request_id(request, "chatcmpl-")
    deltas, reply = await _begin_chat(request, chat, id, engine, fetcher)
    return await _respond(request, chat, id, deltas, reply)


async def responses(request: Request, engine: ServingEngine, fetcher: MediaFetcher) -> Response:
    asked = await receive(request, engine, ResponsesRequest, RESPONSES_UNSUPPORTED)
    id = request_id(request, "resp_")
    try:
        deltas, chat_reply = await _begin_chat(request, chat_request(asked), id, engine, fetcher)
        reply = ResponsesReply(asked, id, engine.model_name, chat_reply)
        asked.input = ""  # media in base64 must not live as long as the answer
        if asked.stream:
            return await respond_in_events(request, id, deltas, lambda generation: response_events(generation, reply))
        return await respond(request, id, deltas, reply)
    except RequestError as error:
        error.param = response_param(error.param)
        raise


async def completions(request: Request, engine: ServingEngine) -> Response:
    asked = await receive(request, engine, CompletionRequest)
    id = request_id(request, "cmpl-")
    tokenizer = engine.processor.tokenizer
    work = await text_requests(asked, id, tokenizer)
    best_of = work[0].sampling.n
    reply = TextReply(asked, id, engine.model_name, tokenizer, echoes(asked, tokenizer), best_of)
    return await _respond(request, asked, id, merged([engine.generate(one) for one in work], best_of), reply)


async def embeddings(request: Request, engine: ServingEngine, fetcher: MediaFetcher) -> Response:
    asked = await receive(request, engine, EmbeddingRequest)
    id = request_id(request, "embd-")
    work = await unless_disconnected(request.receive, embedding_requests(asked, id, fetcher, engine))
    reply = EmbeddingReply(asked, engine.model_name, engine.processor.pooling)
    return await respond(request, id, merged([engine.generate(one) for one in work], 1), reply)


async def _begin_chat(
    request: Request, chat: ChatRequest, id: str, engine: ServingEngine, fetcher: MediaFetcher
) -> tuple[AsyncGenerator[Delta, None], Reply]:
    tools = tool_use(chat, engine)
    work = await unless_disconnected(request.receive, generate_request(chat, id, fetcher, tools))
    work.viewer = request.headers.get("x-viewer")
    chat.messages.clear()  # media in base64 must not live as long as the answer
    how = await reading(work, tools, engine, streamed=bool(chat.stream))
    reply = Reply(id, engine.model_name, engine.processor.tokenizer, how, token_ids=bool(chat.return_token_ids))
    return engine.generate(work), reply


async def _respond(
    request: Request, asked: GenerationOptions, id: str, deltas: AsyncGenerator[Delta, None], reply: GrowingReply
) -> Response:
    if asked.stream:
        options = asked.stream_options or StreamOptions()
        return await respond_in_events(request, id, deltas, lambda generation: chunk_events(generation, reply, options))
    return await respond(request, id, deltas, reply)
