"""The error that a request ends with: one clear sentence, and what an HTTP client needs of it."""


class RequestError(Exception):
    """A request that cannot be served, through its own fault (4xx) or the engine's (5xx)."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        type: str = "invalid_request_error",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param
        self.code = code
        self.type = type


class ConfigError(Exception):
    """A daemon that cannot start as configured: one line that says why and what to do."""
