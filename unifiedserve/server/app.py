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
from unifiedserve.errors import ConfigError
from unifiedserve.server.body import check_origin
from unifiedserve.server.completions import chat_completions, completions, embeddings, responses
from unifiedserve.server.embedding_reply import EmbeddingList
from unifiedserve.server.errors import install_error_handlers
from unifiedserve.server.events import LiveEvents
from unifiedserve.server.exchange import receive
from unifiedserve.server.files import FileDeleted, FileObject, FileStore
from unifiedserve.server.media import MediaFetcher
from unifiedserve.server.openapi import DescribedAPI, describe
from unifiedserve.server.page import add_page
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
from unifiedserve.server.stream import EventStream
from unifiedserve.server.text_reply import Completion
from unifiedserve.server.tokens import DetokenizeReply, TokenizeReply, detokenize, tokenize

COMPARED_PATH = "/monolithic"


def create_app(engine: ServingEngine, compared: ServingEngine | None = None) -> FastAPI:
    """The app; its lifespan starts and stops the engines. The API of the `compared` one is below `COMPARED_PATH`."""
    files = FileStore(engine.config)
    fetcher = MediaFetcher(engine.config, files)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            await engine.start()
            stack.push_async_callback(engine.stop)
            if compared is not None:
                await _start_second(compared)
                stack.push_async_callback(compared.stop)
            stack.callback(files.close)
            await stack.enter_async_context(fetcher)
            yield

    app = DescribedAPI(title="UnifiedServe", version=__version__, lifespan=lifespan, redirect_slashes=False)
    _add_api(app, engine, fetcher)
    _add_files(app, files)
    if compared is not None:
        other = DescribedAPI(title="UnifiedServe, monolithic", version=__version__, redirect_slashes=False)
        _add_api(other, compared, fetcher)
        app.mount(COMPARED_PATH, other)
    add_page(app, engine, COMPARED_PATH if compared is not None else "")
    return app


async def _start_second(engine: ServingEngine) -> None:
    try:
        await engine.start()
    except ConfigError as error:
        raise ConfigError(f"--compare, which starts a second engine: {error}") from error


def _add_api(app: FastAPI, engine: ServingEngine, fetcher: MediaFetcher) -> None:
    install_error_handlers(app)
    _add_inference(app, engine, fetcher)
    _add_status(app, engine)


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


def _add_files(app: FastAPI, files: FileStore) -> None:
    @app.post(
        "/v1/files", **describe("Upload an image or a video, to name it by its id in messages", answer=FileObject)
    )
    async def post_file(request: Request) -> Response:
        return _json(await files.upload(request))

    @app.delete("/v1/files/{id}", **describe("Forget an uploaded file", answer=FileDeleted))
    async def delete_file(id: str) -> Response:
        return _json(files.delete(id))


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

    @app.get("/v1/events", **describe("What the stages do, live", media_type="text/event-stream"))
    async def get_events(request: Request, viewer: str | None = None) -> Response:
        check_origin(request)
        events = LiveEvents(engine, viewer)
        return EventStream(events, events)

    @app.get("/debug/trace", **describe("The stages' timeline, as Chrome/Perfetto trace JSON"))
    async def get_trace(request_id: str | None = None) -> Response:
        return _json(engine.trace(request_id))


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
