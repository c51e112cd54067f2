"""Serve POST /v1/completions: prompts from their bytes to their answers."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.server.answers.merge import merged
from unifiedserve.server.answers.respond import respond
from unifiedserve.server.completions.conversion import echoes, text_requests
from unifiedserve.server.completions.reply import Completion, TextReply
from unifiedserve.server.completions.request import CompletionRequest
from unifiedserve.server.disconnect import unless_disconnected
from unifiedserve.server.endpoint import Endpoint, Services
from unifiedserve.server.requests.receive import TEXT_BYTES, received, request_id


async def post_completions(services: Services, request: Request) -> Response:
    """Go on with some texts; raises RequestError."""
    engine, processor = services.engine, services.engine.processor
    async with received(services, request, CompletionRequest, TEXT_BYTES) as asked:
        id = request_id(request, "cmpl-")
        work = await unless_disconnected(request.receive, text_requests(asked, id, engine))
    best_of = work[0].sampling.n
    echoed = await asyncio.to_thread(echoes, asked, processor.tokenizer)
    reply = TextReply(asked, id, engine.model_name, processor.chat.tokens, echoed, best_of)
    return await respond(request, asked, id, merged([engine.generate(one) for one in work], best_of), reply)


ENDPOINT = Endpoint(
    "POST",
    "/v1/completions",
    "Continue a text",
    post_completions,
    body=CompletionRequest,
    answer=Completion,
    event=Completion,
)
