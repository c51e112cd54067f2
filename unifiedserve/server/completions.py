"""POST /v1/chat/completions and /v1/completions: one request from its bytes to its answer."""

import uuid
from collections.abc import AsyncGenerator

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.config import MIB
from unifiedserve.errors import RequestError
from unifiedserve.messages import Delta
from unifiedserve.server.body import read_body
from unifiedserve.server.chat import generate_request
from unifiedserve.server.disconnect import ClientGoneError, unless_disconnected
from unifiedserve.server.errors import CLIENT_CLOSED_REQUEST
from unifiedserve.server.generation import Generation
from unifiedserve.server.media import MediaFetcher
from unifiedserve.server.merge import merged
from unifiedserve.server.parse import parse
from unifiedserve.server.protocol import GrowingReply, ServingEngine
from unifiedserve.server.reply import Reply
from unifiedserve.server.schema import ChatRequest, CompletionRequest, GenerationOptions, StreamOptions
from unifiedserve.server.stream import EventStream, chunk_events
from unifiedserve.server.text import echoes, text_requests
from unifiedserve.server.text_reply import TextReply
from unifiedserve.server.tools import reading, tool_use


def body_limit(engine: ServingEngine) -> int:
    """Bytes of a body that may hold one medium of the largest size, in base64."""
    return engine.config.max_media_mib * MIB * 4 // 3 + MIB


def check_model(model: str | None, engine: ServingEngine) -> None:
    if model is not None and model != engine.model_name:
        raise RequestError(
            f"The model `{model}` does not exist; this server has `{engine.model_name}`.",
            status=404,
            param="model",
            code="model_not_found",
        )


async def chat_completions(request: Request, engine: ServingEngine, fetcher: MediaFetcher) -> Response:
    chat = parse(await read_body(request, body_limit(engine)), ChatRequest)
    check_model(chat.model, engine)
    id = f"chatcmpl-{uuid.uuid4().hex}"
    try:
        tools = tool_use(chat, engine)
        work = await unless_disconnected(request.receive, generate_request(chat, id, fetcher, tools))
        chat.messages.clear()  # media in base64 must not live as long as the answer
        how = await reading(work, tools, engine)
        reply = Reply(id, engine.model_name, engine.processor.tokenizer, how, token_ids=bool(chat.return_token_ids))
        return await _respond(request, chat, id, engine.generate(work), reply)
    except ClientGoneError:
        return Response(status_code=CLIENT_CLOSED_REQUEST)


async def completions(request: Request, engine: ServingEngine) -> Response:
    asked = parse(await read_body(request, body_limit(engine)), CompletionRequest)
    check_model(asked.model, engine)
    id = f"cmpl-{uuid.uuid4().hex}"
    tokenizer = engine.processor.tokenizer
    work = await text_requests(asked, id, tokenizer)
    best_of = work[0].sampling.n
    reply = TextReply(asked, id, engine.model_name, tokenizer, echoes(asked, tokenizer), best_of)
    try:
        return await _respond(request, asked, id, merged([engine.generate(one) for one in work], best_of), reply)
    except ClientGoneError:
        return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _respond(
    request: Request, asked: GenerationOptions, id: str, deltas: AsyncGenerator[Delta, None], reply: GrowingReply
) -> Response:
    """The response to a stream begins after the first delta, so that bad requests get their 4xx."""
    headers = {"X-Request-Id": id}
    generation = Generation(deltas)
    try:
        if asked.stream:
            await unless_disconnected(request.receive, generation.start())
            events = chunk_events(generation, reply, asked.stream_options or StreamOptions())
            return EventStream(events, generation, headers)
        completion = await unless_disconnected(request.receive, _complete(generation, reply))
    except BaseException:
        await generation.aclose()
        raise
    return Response(msgspec.json.encode(completion), 200, headers, "application/json")


async def _complete(generation: Generation, reply: GrowingReply) -> msgspec.Struct:
    async for delta in generation:
        reply.keep(reply.take(delta))
    return reply.completion()
