"""One HTTP exchange: the request's body, and the response that its reply becomes."""

import re
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.config import MIB
from unifiedserve.errors import RequestError
from unifiedserve.messages import Delta
from unifiedserve.server.body import read_body
from unifiedserve.server.disconnect import unless_disconnected
from unifiedserve.server.generation import Generation
from unifiedserve.server.parse import parse
from unifiedserve.server.protocol import ServingEngine, WholeReply
from unifiedserve.server.schema import UNSUPPORTED, ModelRequest
from unifiedserve.server.stream import EventStream, taken

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

R = TypeVar("R", bound=ModelRequest)


async def receive(
    request: Request,
    engine: ServingEngine,
    struct: type[R],
    unsupported: Mapping[str, Collection[Any]] = UNSUPPORTED,
) -> R:
    """Raises RequestError for a body that is none, and for another model than the one that is served."""
    most = engine.config.max_media_mib * MIB * 4 // 3 + MIB  # one medium of the largest size, in base64
    asked = parse(await read_body(request, most), struct, unsupported)
    if asked.model is not None and asked.model != engine.model_name:
        raise RequestError(
            f"The model `{asked.model}` does not exist; this server has `{engine.model_name}`.",
            status=404,
            param="model",
            code="model_not_found",
        )
    return asked


def request_id(request: Request, prefix: str) -> str:
    """The client's X-Request-Id, or a new one, behind `prefix`. Raises RequestError 400 for one that is odd."""
    id = request.headers.get("x-request-id") or uuid.uuid4().hex
    if not _REQUEST_ID.fullmatch(id):
        raise RequestError("X-Request-Id must be 1 to 128 letters, digits, '.', '_', ':' or '-'.", param="X-Request-Id")
    return prefix + id


async def respond(request: Request, id: str, deltas: AsyncGenerator[Delta, None], reply: WholeReply) -> Response:
    """The whole reply; raises ClientGoneError if nobody waits for it any more."""
    generation = Generation(deltas)
    try:
        completion = await unless_disconnected(request.receive, _complete(generation, reply))
    except BaseException:
        await generation.aclose()
        raise
    return Response(msgspec.json.encode(completion), 200, _headers(id), "application/json")


async def respond_in_events(
    request: Request,
    id: str,
    deltas: AsyncGenerator[Delta, None],
    events: Callable[[Generation], AsyncIterator[bytes]],
) -> Response:
    """A stream of events. It begins after the first delta, so that bad requests get their 4xx."""
    generation = Generation(deltas)
    try:
        await unless_disconnected(request.receive, generation.start())
    except BaseException:
        await generation.aclose()
        raise
    return EventStream(events(generation), generation, _headers(id))


async def _complete(generation: Generation, reply: WholeReply) -> msgspec.Struct:
    async for delta in generation:
        reply.keep(await taken(reply, delta))
    return reply.completion()


def _headers(id: str) -> dict[str, str]:
    return {"X-Request-Id": id}
