"""A request as it arrives: its body, JSON by its label and never more of it than allowed, and its headers."""

import re
import uuid
from typing import TypeVar
from urllib.parse import urlsplit

from starlette.requests import Request

from unifiedserve.config import MIB
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.server.protocol import ServingEngine
from unifiedserve.server.requests.base import ModelRequest
from unifiedserve.server.requests.parse import parse

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

R = TypeVar("R", bound=ModelRequest)


async def receive(request: Request, engine: ServingEngine, struct: type[R]) -> R:
    """Return the parsed body; raise RequestError if it is none, or for another model than the one that is served."""
    most = engine.config.max_media_mib * MIB * 4 // 3 + MIB  # one medium of the largest size, in base64
    asked = parse(await _read_body(request, most), struct)
    if asked.model is not None and asked.model != engine.model_name:
        raise RequestError(
            f"The model `{asked.model}` does not exist; this server has `{engine.model_name}`.",
            ErrorKind.NOT_FOUND,
            param="model",
            code="model_not_found",
        )
    return asked


def request_id(request: Request, prefix: str) -> str:
    """Return the client's X-Request-Id, or a new one, behind `prefix`; raise RequestError 400 for one that is odd."""
    id = request.headers.get("x-request-id") or uuid.uuid4().hex
    if not _REQUEST_ID.fullmatch(id):
        raise RequestError("X-Request-Id must be 1 to 128 letters, digits, '.', '_', ':' or '-'.", param="X-Request-Id")
    return prefix + id


def announced_length(request: Request) -> int:
    """Return the bytes of the body by its header; 0 if that does not say."""
    length = request.headers.get("content-length", "0")
    return int(length) if length.isdecimal() else 0


def check_origin(request: Request) -> None:
    """Raise RequestError 403 for what a page of another site made a browser send, where no label tells."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise RequestError(f"Pages of {origin} may not use this server.", ErrorKind.FORBIDDEN, code="forbidden_origin")


async def _read_body(request: Request, limit: int) -> bytes:
    """Return the whole body; raise RequestError 415 if it is not labelled JSON, 413 above `limit` bytes.

    The label matters: a web page can make a browser post anything but JSON to a server on localhost.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise RequestError(
            f"The body must be sent as Content-Type: application/json, not '{content_type}'.", ErrorKind.CONTENT_TYPE
        )
    if announced_length(request) > limit:
        raise _too_large(limit)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


def _too_large(limit: int) -> RequestError:
    return RequestError(
        f"The request's body is larger than {limit >> 20} MiB (see --max-media-mib).",
        ErrorKind.TOO_LARGE,
        code="request_too_large",
    )
