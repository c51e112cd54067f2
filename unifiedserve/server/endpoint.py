"""Endpoints as data: one record says where an operation is served and how the OpenAPI document describes it."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unifiedserve.server.media.fetcher import MediaFetcher
from unifiedserve.server.media.file_store import FileStore
from unifiedserve.server.protocol import ServingEngine
from unifiedserve.server.requests.body import Bodies

JSON = "application/json"
EVENTS = "text/event-stream"


class Services(NamedTuple):
    """What endpoints answer with; `started` is the time of their start, in seconds since 1970."""

    engine: ServingEngine
    files: FileStore
    fetcher: MediaFetcher
    bodies: Bodies
    started: int


class Endpoint(NamedTuple):
    """An operation at a path: the structs that it takes and gives, as a whole and as a stream of events."""

    method: str
    path: str
    summary: str
    handler: Callable[[Services, Request], Awaitable[Response]]
    body: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | None = None
    event: type[msgspec.Struct] | None = None
    query: str | None = None  # the name of its parameter
    media_type: str = JSON

    def route(self, services: Services) -> Route:
        """Return the route that serves it."""
        return exact_route(self.method, self.path, partial(self.handler, services))


def exact_route(method: str, path: str, handler: Callable[[Request], Awaitable[Response]]) -> Route:
    """Return a route of one method: Starlette would answer HEAD where there is GET, and run streams without end."""
    route = Route(path, handler, methods=[method])
    route.methods = {method}
    return route


def json_response(value: Any, status: int = 200) -> Response:
    """Return a response that is `value` as JSON."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)
