"""Answer with a router's own failures, as clients of each API read them."""

import logging
from http import HTTPStatus

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.server.access.hosts import Hosts
from unifiedserve.server.answers.event_stream import event
from unifiedserve.server.error_bodies import error_body_at
from unifiedserve.server.errors import internal_error, status_of

_log = logging.getLogger(__name__)

_PROBES = ("/health", "/ready")  # by addresses, as whatever watches over a router knows it


def answering(hosts: Hosts) -> Middleware:
    """Return what answers each request, with an error where that fails.

    Requests for other hosts are refused: nodes see their own names only, so they cannot.
    """

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.path not in _PROBES:
                hosts.check(request.headers.get("host"))
            return await handler(request)
        except RequestError as error:
            headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
            return _response(request, error, status_of(error), headers)
        except web.HTTPException as error:
            return _response(request, _told(request, error), error.status, {})
        except ConnectionError:
            raise  # the client has gone
        except Exception:
            _log.exception("request failed")
            return _response(request, internal_error(), HTTPStatus.INTERNAL_SERVER_ERROR, {})

    return answer


def last_event(path: str, error: RequestError) -> bytes:
    """Return the last event of a stream that nobody goes on with."""
    named = b"" if path.endswith("completions") else b"event: error\n"
    return named + event(error_body_at(path, error, status_of(error)))


def _response(request: web.Request, error: RequestError, status: int, headers: dict[str, str]) -> web.Response:
    body = msgspec.json.encode(error_body_at(request.path, error, status))
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def _told(request: web.Request, error: web.HTTPException) -> RequestError:
    where = f"{request.method} {request.path}"[:256]
    if isinstance(error, web.HTTPMethodNotAllowed):
        return RequestError(f"{where} is not possible: this path takes {', '.join(sorted(error.allowed_methods))}.")
    if isinstance(error, web.HTTPNotFound):
        return RequestError(f"There is no {where} at a router.", ErrorKind.NOT_FOUND, code="not_found")
    return RequestError(error.reason)
