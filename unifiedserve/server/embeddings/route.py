"""Serve POST /v1/embeddings: texts or messages from their bytes to their vectors."""

from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.server.access.caller import caller_of
from unifiedserve.server.answers.merge import merged
from unifiedserve.server.answers.respond import respond_whole
from unifiedserve.server.disconnect import unless_disconnected
from unifiedserve.server.embeddings.conversion import embedding_requests
from unifiedserve.server.embeddings.reply import EmbeddingList, EmbeddingReply
from unifiedserve.server.embeddings.request import EmbeddingRequest
from unifiedserve.server.endpoint import Endpoint, Services
from unifiedserve.server.requests.encode_nodes import encode_nodes
from unifiedserve.server.requests.receive import received, request_id


async def post_embeddings(services: Services, request: Request) -> Response:
    """Make vectors; raises RequestError."""
    engine = services.engine
    async with received(services, request, EmbeddingRequest) as asked:
        fetcher = services.fetcher.of(caller_of(request))
        id = request_id(request, "embd-")
        work = await unless_disconnected(request.receive, embedding_requests(asked, id, fetcher, engine))
    for one in work:
        one.encode_nodes = encode_nodes(request)
    reply = EmbeddingReply(asked, engine.model_name, engine.processor.pooling)
    return await respond_whole(request, id, merged([engine.generate(one) for one in work], 1), reply)


ENDPOINT = Endpoint(
    "POST",
    "/v1/embeddings",
    "Turn texts or messages into vectors",
    post_embeddings,
    body=EmbeddingRequest,
    answer=EmbeddingList,
)
