"""The request's body: JSON by its label, and never more of it than allowed."""

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
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > limit:
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
        status=413,
        code="request_too_large",
    )
