"""Define the errors that end a request or a daemon. Each is one clear sentence and a kind of failure."""

from enum import StrEnum

import msgspec

#: what a server says to those whose requests it cannot end any more; a router has another one go on with them
SHUTTING_DOWN = "the server is shutting down"
#: what msgspec raises for bytes that are no JSON of the kind
NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ErrorKind(StrEnum):
    """Name the kind of a failure. The HTTP server turns it into a status and a type."""

    INVALID = "invalid"  # it can never be served as it is
    NO_KEY = "no key"  # it shows none of the keys that there are
    FORBIDDEN = "forbidden"  # it comes from where none may come from
    NOT_FOUND = "not found"  # it names what is not there
    CONFLICT = "conflict"  # the state of what it would change forbids it
    HARMFUL = "harmful"  # workers died while they worked on it
    TOO_LARGE = "too large"  # its body is
    SLOW = "slow"  # its body does not come
    CONTENT_TYPE = "content type"  # its body is labelled as something else
    BUSY = "busy"  # others are served at the moment: it may come again
    NO_ROOM = "no room"  # there is no place for what it brings at the moment
    NO_STORAGE = "no storage"  # the disk that it must be kept on is full
    UNAVAILABLE = "unavailable"  # the engine takes no more, at the moment or ever
    LATE = "late"  # its deadline passed
    INTERNAL = "internal"  # a defect, or a worker that died


class RequestError(Exception):
    """Signal a request that cannot be served, through its own fault or the engine's.

    After `retry_after` seconds it may be.
    """

    def __init__(
        self,
        message: str,
        kind: ErrorKind = ErrorKind.INVALID,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.retry_after = retry_after


class ConfigError(Exception):
    """Signal a daemon that cannot start as configured: one line says why, and what to do."""
