"""Every failure as OpenAI's error object: {"error": {"message", "type", "param", "code"}}."""

from collections.abc import Mapping

import msgspec
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from unifiedserve.errors import RequestError
from unifiedserve.server.disconnect import ClientGoneError

CLIENT_CLOSED_REQUEST = 499  # nobody reads it; proxies log it


class ErrorDetail(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct):
    error: ErrorDetail


def error_body(error: RequestError) -> ErrorBody:
    return ErrorBody(ErrorDetail(error.message, error.type, error.param, error.code))


def internal_error() -> RequestError:
    """What a client is told of a fault of ours; the log has the rest."""
    return RequestError("Internal error; the server's log has the details.", status=500, type="server_error")


def error_response(error: RequestError, headers: Mapping[str, str] | None = None) -> Response:
    body = msgspec.json.encode(error_body(error))
    return Response(body, error.status, headers, "application/json")


def install_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(RequestError, _on_request_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(ClientGoneError, _on_disconnect)
    app.add_exception_handler(Exception, _on_exception)


async def _on_request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return error_response(error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path}"
    message = {
        404: f"There is no {where}; GET /docs lists what there is.",
        405: f"{where} is not possible: wrong method.",
    }.get(error.status_code, str(error.detail))
    code = "not_found" if error.status_code == 404 else None
    return error_response(RequestError(message, status=error.status_code, code=code), error.headers)


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _on_exception(request: Request, error: Exception) -> Response:
    return error_response(internal_error())
