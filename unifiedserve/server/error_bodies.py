"""Write the JSON of a failure, as clients of each API read it."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from unifiedserve.errors import ErrorKind, RequestError

_TYPES = {
    ErrorKind.NO_KEY: "authentication_error",
    ErrorKind.FORBIDDEN: "permission_error",
    ErrorKind.BUSY: "rate_limit_error",
    ErrorKind.NO_ROOM: "server_error",
    ErrorKind.NO_STORAGE: "server_error",
    ErrorKind.UNAVAILABLE: "server_error",
    ErrorKind.LATE: "server_error",
    ErrorKind.INTERNAL: "server_error",
}
_ANTHROPIC_PATH = "/v1/messages"
_ANTHROPIC_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class ErrorDetail(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct):
    """Hold OpenAI's error object."""

    error: ErrorDetail


class AnthropicErrorDetail(msgspec.Struct):
    type: str
    message: str


class AnthropicErrorBody(msgspec.Struct, kw_only=True):
    """Hold Anthropic's error object."""

    type: Literal["error"] = "error"
    error: AnthropicErrorDetail


def error_body(error: RequestError) -> ErrorBody:
    """Return OpenAI's error object for an error."""
    type = _TYPES.get(error.kind, "invalid_request_error")
    return ErrorBody(ErrorDetail(error.message, type, error.param, error.code))


def anthropic_error_body(error: RequestError, status: int) -> AnthropicErrorBody:
    """Return Anthropic's error object for an error of this HTTP status; its message names the field."""
    type = _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    named = error.param is None or error.param in error.message
    message = error.message if named else f"{error.param}: {error.message}"
    return AnthropicErrorBody(error=AnthropicErrorDetail(type, message))


def error_body_at(path: str, error: RequestError, status: int) -> ErrorBody | AnthropicErrorBody:
    """Return the error object that clients of this path expect."""
    return anthropic_error_body(error, status) if _ANTHROPIC_PATH in path else error_body(error)
