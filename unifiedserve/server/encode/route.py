"""Serve POST /v1/encode: other nodes of the cluster have media encoded, and read the visual tokens from here."""

from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.encoding import (
    PATH,
    EncodedUnit,
    EncodeFailure,
    HeadError,
    line_of,
    unpack,
)
from unifiedserve.server.access.cluster import has_cluster_key
from unifiedserve.server.answers.event_stream import EventStream, ending
from unifiedserve.server.endpoint import Services


async def post_encode(services: Services, request: Request) -> Response:
    """Have media encoded; raises RequestError without the cluster's key, and for what is no such request."""
    if not has_cluster_key(request):
        raise RequestError(f"{PATH} is for nodes of the cluster, which show its key.", ErrorKind.FORBIDDEN)
    services.engine.check_room()
    body = await services.bodies.read(request, services.bodies.max_bytes)
    try:
        asked, data = unpack(body.data)
    except HeadError as error:
        raise RequestError(str(error)) from error
    finally:
        body.close()
    units = services.engine.encode(asked, data)
    return EventStream(ending(_lines(units), _failure), units, {"Content-Type": "application/x-ndjson"})


def encode_routes(services: Services) -> list[Route]:
    """Return the route, if the engine encodes for others."""
    if not services.engine.config.machine.workers.encodes_for_others:
        return []
    return [Route(PATH, partial(post_encode, services), methods=["POST"])]


async def _lines(units: AsyncGenerator[EncodedUnit | None, None]) -> AsyncIterator[bytes]:
    async for unit in units:
        yield line_of(unit) if unit else b"\n"


def _failure(error: RequestError) -> bytes:
    return line_of(EncodeFailure(error.message, error.kind, error.param))
