"""The request's body: JSON by its label, and never more of it than allowed."""

from urllib.parse import urlsplit

from starlette.requests import Request

from unifiedserve.errors import RequestError


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body; raises RequestError 415 if it is not labelled JSON, 413 above `limit` bytes.

    The label matters: a web page can make a browser post anything but JSON to a server on localhost.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise RequestError(
            f"The body must be sent as Content-Type: application/json, not '{content_type}'.", status=415
        )
    if announced_length(request) > limit:
        raise _too_large(limit)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


def announced_length(request: Request) -> int:
    """Bytes of the body by its header; 0 if that does not say."""
    length = request.headers.get("content-length", "0")
    return int(length) if length.isdecimal() else 0


def check_origin(request: Request) -> None:
    """Raises RequestError 403 for what a page of another site made a browser send, where no label tells."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise RequestError(f"Pages of {origin} may not use this server.", status=403, code="forbidden_origin")


def _too_large(limit: int) -> RequestError:
    return RequestError(
        f"The request's body is larger than {limit >> 20} MiB (see --max-media-mib).",
        status=413,
        code="request_too_large",
    )
