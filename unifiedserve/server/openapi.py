"""The API's description at /openapi.json, from the structs that are really parsed and sent."""

from typing import Any

import msgspec
from fastapi import FastAPI

from unifiedserve.server.errors import ErrorBody
from unifiedserve.server.reply import ChatCompletion, ChatCompletionChunk
from unifiedserve.server.schema import ChatRequest, DetokenizeRequest, TokenizeRequest
from unifiedserve.server.tokens import DetokenizeReply, TokenizeReply

_STRUCTS = [
    ChatCompletion,
    ChatCompletionChunk,
    ChatRequest,
    DetokenizeReply,
    DetokenizeRequest,
    ErrorBody,
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
        content["text/event-stream"] = _schema(event)
    failure = {"application/json": _schema(ErrorBody)}
    described: dict[str, Any] = {
        "summary": summary,
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
