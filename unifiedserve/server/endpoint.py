"""Describe endpoints as data: where an operation is served, and its OpenAPI description."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unifiedserve.server.error_bodies import ErrorBody
from unifiedserve.server.media.fetcher import MediaFetcher
from unifiedserve.server.media.file_store import FileStore
from unifiedserve.server.protocol import ServingEngine
from unifiedserve.server.requests.body import Bodies
from unifiedserve.server.responses.store import ResponseStore

JSON = "application/json"
EVENTS = "text/event-stream"


class Services(NamedTuple):
    """Hold what endpoints answer with. `started` is the time of their start, in seconds since 1970."""

    engine: ServingEngine
    files: FileStore
    fetcher: MediaFetcher
    bodies: Bodies
    responses: ResponseStore
    started: int


class Endpoint(NamedTuple):
    """Describe an operation at a path: the structs that it takes and gives, as a whole and as a stream of events.

    A parameter of the path is in braces; `{id:path}` may have slashes.
    """

    method: str
    path: str
    summary: str
    handler: Callable[[Services, Request], Awaitable[Response]]
    body: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | None = None
    event: type[msgspec.Struct] | None = None
    query: str | None = None  # the name of its parameter
    media_type: str = JSON
    error: type[msgspec.Struct] = ErrorBody


_Handler = Callable[[Request], Awaitable[Response]]


def endpoint_routes(endpoints: Sequence[Endpoint], services: Services) -> Iterator[Route]:
    """Yield a route a path: it answers a wrong method with the right ones."""
    handlers: dict[str, dict[str, _Handler]] = {}
    for endpoint in endpoints:
        handlers.setdefault(endpoint.path, {})[endpoint.method] = partial(endpoint.handler, services)
    for path, by_method in handlers.items():
        yield _route(path, by_method)


def get_route(path: str, handler: _Handler) -> Route:
    """Return a route of GET and HEAD."""
    return _route(path, {"GET": handler})


def _route(path: str, by_method: Mapping[str, _Handler]) -> Route:
    """Return a route; HEAD is answered as GET, of which the connection sends no body."""

    async def handle(request: Request) -> Response:
        return await by_method["GET" if request.method == "HEAD" else request.method](request)

    return Route(path, handle, methods=list(by_method))


def json_response(value: Any, status: int = 200) -> Response:
    """Return a response that is `value` as JSON."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)
