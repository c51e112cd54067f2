"""Describe the API at /openapi.json, from its endpoints. The page at /docs shows it."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from unifiedserve import __version__
from unifiedserve.server.endpoint import EVENTS, JSON, Endpoint, get_route, json_response

_SCHEMA = "#/components/schemas/{name}"
_PAGE = """<!DOCTYPE html>
<html>
<head>
<meta name="viewport" content="width=device-width, initial-scale=1.0">
<link type="text/css" rel="stylesheet" href="https://cdn.jsdelivr.net/npm/swagger-ui-dist@5/swagger-ui.css">
<title>UnifiedServe</title>
</head>
<body>
<div id="swagger-ui"></div>
<script src="https://cdn.jsdelivr.net/npm/swagger-ui-dist@5/swagger-ui-bundle.js"></script>
<script>SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true})</script>
</body>
</html>
"""


def description_routes(title: str, endpoints: Sequence[Endpoint]) -> list[Route]:
    """Return the routes of the document and of its page."""
    document = _document(title, tuple(endpoints))

    async def get_document(request: Request) -> Response:
        root = request.scope.get("root_path")
        return json_response({**document, "servers": [{"url": root}]} if root else document)

    async def get_docs(request: Request) -> Response:
        return HTMLResponse(_PAGE)

    return [get_route("/openapi.json", get_document), get_route("/docs", get_docs)]


@cache
def _document(title: str, endpoints: tuple[Endpoint, ...]) -> dict[str, Any]:
    return openapi(title, endpoints)


def openapi(title: str, endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI document of these endpoints. It has the schemas of the structs that they parse and send."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(_shown(endpoint.path), {})[endpoint.method.lower()] = _operation(endpoint)
    structs = {
        struct
        for each in endpoints
        for struct in (each.body, each.answer, each.event, each.error)
        if struct is not None
    }
    _, schemas = msgspec.json.schema_components(structs, ref_template=_SCHEMA)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    content = {endpoint.media_type: _content(endpoint.answer)}
    if endpoint.event is not None:
        content[EVENTS] = {"itemSchema": _event_schema(endpoint.event, endpoint.error)}
    failure = {JSON: _content(endpoint.error)}
    place = re.sub(r"\W", "_", _shown(endpoint.path))
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": f"{endpoint.handler.__name__}{place}_{endpoint.method.lower()}",
        "responses": {
            "200": {"description": "Success", "content": content},
            "4XX": {"description": "The request is at fault, or has to wait", "content": failure},
            "5XX": {"description": "The server is at fault", "content": failure},
        },
    }
    if parameters := list(_parameters(endpoint)):
        operation["parameters"] = parameters
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: _content(endpoint.body)}}
    return operation


def _shown(path: str) -> str:
    return path.replace(":path}", "}")


def _parameters(endpoint: Endpoint) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", _shown(endpoint.path)):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    if endpoint.query is not None:
        yield {"name": endpoint.query, "in": "query", "required": False, "schema": {"type": ["string", "null"]}}


def _content(struct: type[msgspec.Struct] | None) -> dict[str, Any]:
    return {"schema": _reference(struct)} if struct else {}


def _event_schema(struct: type[msgspec.Struct], error: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of one server-sent event: a struct, the error that ended the stream, or the closing word."""
    members = [_reference(struct), _reference(error)]
    body = {"type": "string", "contentMediaType": JSON, "contentSchema": {"anyOf": members}}
    return {"type": "object", "required": ["data"], "properties": {"data": {"anyOf": [{"const": "[DONE]"}, body]}}}


def _reference(struct: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": _SCHEMA.format(name=struct.__name__)}
