"""The API's description at /openapi.json, from the structs that are really parsed and sent."""

from typing import Any

import msgspec
from fastapi import FastAPI
from starlette.responses import Response

from unifiedserve.server.embedding_reply import EmbeddingList
from unifiedserve.server.errors import ErrorBody
from unifiedserve.server.files import FileDeleted, FileObject
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
from unifiedserve.server.tokens import DetokenizeReply, TokenizeReply

_STRUCTS = [
    ChatCompletion,
    ChatCompletionChunk,
    ChatRequest,
    Completion,
    CompletionRequest,
    DetokenizeReply,
    DetokenizeRequest,
    EmbeddingList,
    EmbeddingRequest,
    ErrorBody,
    ResponseObject,
    ResponsesRequest,
    FileDeleted,
    FileObject,
    TokenizeReply,
    TokenizeRequest,
]


class DescribedAPI(FastAPI):
    """FastAPI whose document holds the schemas of our structs."""

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        _, schemas = msgspec.json.schema_components(_STRUCTS, ref_template="#/components/schemas/{name}")
        document.setdefault("components", {})["schemas"] = schemas
        return document


def describe(
    summary: str,
    body: type[msgspec.Struct] | None = None,
    answer: type[msgspec.Struct] | None = None,
    *,
    media_type: str = "application/json",
    event: type[msgspec.Struct] | None = None,
) -> dict[str, Any]:
    """Keyword arguments of a FastAPI route: what it takes and gives, as a whole and as a stream of events."""
    content = {media_type: _schema(answer)}
    if event is not None:
        content["text/event-stream"] = {"itemSchema": _event_schema(event)}
    failure = {"application/json": _schema(ErrorBody)}
    described: dict[str, Any] = {
        "summary": summary,
        "response_class": Response,  # any other adds its own media type to `responses`
        "response_model": None,
        "responses": {
            200: {"description": "Success", "content": content},
            "4XX": {"description": "The request's fault", "content": failure},
            "5XX": {"description": "The server's fault", "content": failure},
        },
    }
    if body is not None:
        described["openapi_extra"] = {"requestBody": {"required": True, "content": {"application/json": _schema(body)}}}
    return described


def _schema(struct: type[msgspec.Struct] | None) -> dict[str, Any]:
    return {"schema": {"$ref": f"#/components/schemas/{struct.__name__}"}} if struct else {}


def _event_schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """One server-sent event: a struct, the error that ended the stream, or the closing word."""
    members = [_schema(struct)["schema"], _schema(ErrorBody)["schema"]]
    body = {"type": "string", "contentMediaType": "application/json", "contentSchema": {"anyOf": members}}
    return {"type": "object", "required": ["data"], "properties": {"data": {"anyOf": [{"const": "[DONE]"}, body]}}}
