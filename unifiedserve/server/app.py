"""The HTTP API of an engine."""

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from unifiedserve import __version__
from unifiedserve.server.completions import chat_completions, completions, embeddings, responses
from unifiedserve.server.embedding_reply import EmbeddingList
from unifiedserve.server.errors import install_error_handlers
from unifiedserve.server.exchange import receive
from unifiedserve.server.media import MediaFetcher
from unifiedserve.server.openapi import DescribedAPI, describe
from unifiedserve.server.protocol import ServingEngine
from unifiedserve.server.reply import ChatCompletion, ChatCompletionChunk
from unifiedserve.server.responses_reply import ResponseObject
from unifiedserve.server.responses_schema import ResponsesRequest
from unifiedserve.server.schema import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    TokenizeRequest,
)
from unifiedserve.server.text_reply import Completion
from unifiedserve.server.tokens import DetokenizeReply, TokenizeReply, detokenize, tokenize


def create_app(engine: ServingEngine) -> FastAPI:
    """The app; its lifespan starts and stops `engine`."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await engine.start()
        try:
            async with fetcher:
                yield
        finally:
            await engine.stop()

    fetcher = MediaFetcher(engine.config)
    app = DescribedAPI(title="UnifiedServe", version=__version__, lifespan=lifespan, redirect_slashes=False)
    install_error_handlers(app)
    _add_inference(app, engine, fetcher)
    _add_status(app, engine)
    return app


def _add_inference(app: FastAPI, engine: ServingEngine, fetcher: MediaFetcher) -> None:
    @app.post(
        "/v1/chat/completions",
        **describe("Answer a conversation", ChatRequest, ChatCompletion, event=ChatCompletionChunk),
    )
    async def post_chat_completions(request: Request) -> Response:
        return await chat_completions(request, engine, fetcher)

    @app.post("/v1/responses", **describe("Answer a conversation, in items", ResponsesRequest, ResponseObject))
    async def post_responses(request: Request) -> Response:
        return await responses(request, engine, fetcher)

    @app.post("/v1/completions", **describe("Go on with a text", CompletionRequest, Completion, event=Completion))
    async def post_completions(request: Request) -> Response:
        return await completions(request, engine)

    @app.post("/v1/embeddings", **describe("Make vectors of texts or messages", EmbeddingRequest, EmbeddingList))
    async def post_embeddings(request: Request) -> Response:
        return await embeddings(request, engine, fetcher)

    @app.post("/tokenize", **describe("Text or messages to token ids", TokenizeRequest, TokenizeReply))
    async def post_tokenize(request: Request) -> Response:
        return _json(await tokenize(await receive(request, engine, TokenizeRequest), engine))

    @app.post("/detokenize", **describe("Token ids to text", DetokenizeRequest, DetokenizeReply))
    async def post_detokenize(request: Request) -> Response:
        return _json(await detokenize(await receive(request, engine, DetokenizeRequest), engine))


def _add_status(app: FastAPI, engine: ServingEngine) -> None:
    started = int(time.time())

    @app.get("/v1/models", **describe("The model that is served"))
    async def get_models() -> Response:
        model = {
            "id": engine.model_name,
            "object": "model",
            "created": started,
            "owned_by": "unifiedserve",
            "max_model_len": engine.max_model_len,
        }
        return _json({"object": "list", "data": [model]})

    @app.get("/health", **describe("200 if all workers live, else 503"))
    async def get_health() -> Response:
        healthy = engine.healthy
        return _json({"status": "ok" if healthy else "a worker is down"}, 200 if healthy else 503)

    @app.get("/metrics", **describe("Metrics in Prometheus' text format", media_type="text/plain"))
    async def get_metrics() -> Response:
        return Response(engine.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    @app.get("/version", **describe("The server's version"))
    async def get_version() -> Response:
        return _json({"version": __version__})

    @app.get("/debug/trace", **describe("The stages' timeline, as Chrome/Perfetto trace JSON"))
    async def get_trace(request_id: str | None = None) -> Response:
        return _json(engine.trace(request_id))


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
