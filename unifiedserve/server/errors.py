"""Turn every failure into a response: its status, its headers and the error object of the API that was asked."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ExceptionHandler

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.server.disconnect import ClientGoneError
from unifiedserve.server.error_bodies import error_body_at

_log = logging.getLogger(__name__)

_LONGEST_PLACE = 256  # characters of a method and path that errors repeat
CLIENT_CLOSED_REQUEST = 499  # nobody reads it; proxies log it

_STATUSES = {
    ErrorKind.INVALID: HTTPStatus.BAD_REQUEST,
    ErrorKind.NO_KEY: HTTPStatus.UNAUTHORIZED,
    ErrorKind.FORBIDDEN: HTTPStatus.FORBIDDEN,
    ErrorKind.NOT_FOUND: HTTPStatus.NOT_FOUND,
    ErrorKind.CONFLICT: HTTPStatus.CONFLICT,
    ErrorKind.HARMFUL: HTTPStatus.UNPROCESSABLE_ENTITY,
    ErrorKind.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ErrorKind.CONTENT_TYPE: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    ErrorKind.SLOW: HTTPStatus.REQUEST_TIMEOUT,
    ErrorKind.BUSY: HTTPStatus.TOO_MANY_REQUESTS,
    ErrorKind.NO_ROOM: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorKind.NO_STORAGE: HTTPStatus.INSUFFICIENT_STORAGE,
    ErrorKind.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorKind.LATE: HTTPStatus.GATEWAY_TIMEOUT,
    ErrorKind.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
}


def refuse_unless(consistent: bool, param: str, message: str) -> None:
    """Raise RequestError 400 that names `param` unless what was asked is consistent."""
    if not consistent:
        raise RequestError(message, param=param)


def status_of(error: RequestError) -> int:
    """Return the HTTP status of an error."""
    return _STATUSES[error.kind]


def internal_error() -> RequestError:
    """Return what a client is told of a fault of ours; the log has the rest."""
    return RequestError("Internal error; the server's log has the details.", ErrorKind.INTERNAL)


def streaming_error(error: Exception) -> RequestError:
    """Return what the client of a stream is told of an error. One that is no RequestError is logged."""
    if isinstance(error, RequestError):
        return error
    _log.error("request failed while streaming", exc_info=error)
    return internal_error()


def error_response(error: RequestError, path: str) -> Response:
    """Return the response that a request to this path ends with."""
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    if error.kind is ErrorKind.NO_KEY:
        headers["WWW-Authenticate"] = "Bearer"
    return _response(error, path, status_of(error), headers)


def _response(error: RequestError, path: str, status: int, headers: Mapping[str, str] | None) -> Response:
    return Response(msgspec.json.encode(error_body_at(path, error, status)), status, headers, "application/json")


async def _on_request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return error_response(error, request.scope["path"])


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path}"[:_LONGEST_PLACE]
    message = {
        404: f"There is no {where}; GET /docs lists what there is.",
        405: f"{where} is not possible: this path takes {(error.headers or {}).get('Allow', 'no method')}.",
    }.get(error.status_code, str(error.detail))
    code = "not_found" if error.status_code == 404 else None
    return _response(RequestError(message, code=code), request.scope["path"], error.status_code, error.headers)


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _on_exception(request: Request, error: Exception) -> Response:
    return error_response(internal_error(), request.scope["path"])


ERROR_HANDLERS: Mapping[Any, ExceptionHandler] = {
    RequestError: _on_request_error,
    HTTPException: _on_http_exception,
    ClientDisconnect: _on_disconnect,
    ClientGoneError: _on_disconnect,
    Exception: _on_exception,
}
