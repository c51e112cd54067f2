"""Receive a request: its body, which must be labelled JSON, and its headers."""

import asyncio
import contextlib
import re
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from urllib.parse import urlsplit

from starlette.requests import Request

from unifiedserve.config import MIB
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.server.access.caller import caller_of
from unifiedserve.server.endpoint import Services
from unifiedserve.server.requests.base import ModelRequest
from unifiedserve.server.requests.body import HeldBody
from unifiedserve.server.requests.parse import parse, shortened

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

R = TypeVar("R", bound=ModelRequest)

TEXT_BYTES = 16 * MIB  # of a body without media: prompts of the longest contexts, as token ids
_LARGE = 1 << 16  # bytes of a body that takes long to parse
_LARGE_BODIES = ThreadPoolExecutor(1, "large-bodies")


@contextlib.asynccontextmanager
async def received(
    services: Services, request: Request, struct: type[R], most_bytes: int | None = None
) -> AsyncIterator[R]:
    """Have the parsed body of at most `most_bytes` (None: as many as any), which counts as held in the meantime.

    Raises RequestError if it is none, for another model than the one that is served, and, before the body is read, if
    the engine has no room for a request that takes its turn.
    """
    _check_label(request)
    if struct.takes_turn:
        services.engine.check_room()
    limit = services.bodies.max_bytes if most_bytes is None else min(most_bytes, services.bodies.max_bytes)
    body = await services.bodies.read(request, limit)
    try:
        asked = await _parsed(body, struct, services.engine.max_model_len)
        if asked.model is not None:
            check_model_name(asked.model, services.engine.model_name)
        yield asked
    finally:
        body.close()


async def _parsed(body: HeldBody, struct: type[R], context: int) -> R:
    """Return the request; large bodies are parsed beside the event loop, one after the other."""
    if len(body.data) <= _LARGE:
        return parse(body.data, struct, context)
    return await asyncio.get_running_loop().run_in_executor(_LARGE_BODIES, parse, body.data, struct, context)


def check_model_name(asked: str, served: str) -> None:
    """Raise RequestError 404 for another model than the one that is served."""
    if asked != served:
        raise RequestError(
            f"The model `{shortened(asked)}` does not exist; this server has `{served}`.",
            ErrorKind.NOT_FOUND,
            param="model",
            code="model_not_found",
        )


def is_request_id(text: str) -> bool:
    """Tell whether a text is fit for the id of a request."""
    return _REQUEST_ID.fullmatch(text) is not None


def request_id(request: Request, prefix: str) -> str:
    """Return the client's X-Request-Id behind `prefix`; a new one if there is none, or an odd one."""
    id = request.headers.get("x-request-id", "")
    return prefix + (id if is_request_id(id) else uuid.uuid4().hex)


def viewer_of(request: Request, name: str | None) -> str | None:
    """Return under which name frames are shown: with another key, a viewer of the same name is another one."""
    return None if name is None else caller_of(request).private(name)


def check_origin(services: Services, request: Request) -> None:
    """Raise RequestError 403 for a request that another site's page made a browser send.

    It serves where no label tells.
    """
    origin = request.headers.get("origin")
    if origin is None or origin in services.engine.config.server.cors_origins:
        return
    if _host_of(origin) != request.headers.get("host"):
        raise RequestError(
            f"Pages of {shortened(origin)} may not use this server.", ErrorKind.FORBIDDEN, code="forbidden_origin"
        )


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # http://[
        return None


def _check_label(request: Request) -> None:
    """Raise RequestError 415 for a body that is not labelled JSON.

    The label matters: a web page can make a browser post anything but JSON to a server on localhost.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise RequestError(
            f"The body must be sent as Content-Type: application/json, not '{shortened(content_type)}'.",
            ErrorKind.CONTENT_TYPE,
        )
